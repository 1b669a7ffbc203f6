"""The ``icefloe`` command: look at a job's state and put things right, without reading code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from icefloe import __version__
from icefloe.connector.cli_mending import run_clean, run_finish, run_verify
from icefloe.connector.cli_output import print_json
from icefloe.connector.cli_views import REFUSED, run_epochs, run_files, run_status
from icefloe.connector.logs import configure_from_environment
from icefloe.errors import IcefloeError

USAGE = 64

_DESCRIPTION = """\
Look at and mend the state of icefloe streams.

STATE is the stateLocation of the query (or the checkpointLocation that holds it): a folder or s3://bucket/prefix."""
_EXIT_CODES = """\
exit codes:
  0   done, and all is well
  1   refused or failed; the message starts with a code, docs/errors.md says what to do
  2   looked, and found what was asked for: older than --max-age (status), damage (verify)
  64  wrong usage"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code, which ``icefloe --help`` explains."""
    parsed = _parser().parse_args(arguments)
    configure_from_environment()
    try:
        return int(parsed.run(parsed))
    except IcefloeError as error:
        if parsed.json:
            print_json({"error": error.code, "message": error.message})
        print(error, file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        # The reader of a pipe has seen enough (`| head`); nothing may be written at the interpreter's end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED


class _Parser(argparse.ArgumentParser):
    """Exits with a code of its own on wrong usage: 2 says that something was found."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="icefloe", description=_DESCRIPTION, epilog=_EXIT_CODES, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"icefloe {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    status = commands.add_parser("status", help="what is committed, what is in flight, what a restart would do")
    status.add_argument("--max-age", metavar="30m", help="exit with 2 if rows wait, or the last commit is, longer ago")
    _complete(status, run_status)

    files = commands.add_parser("files", help="files in flight and how near they are to being finished; recent files")
    _complete(files, run_files)

    epochs = commands.add_parser("epochs", help="timeline: rows, files, bytes and time per phase")
    _complete(epochs, run_epochs)

    verify = commands.add_parser("verify", help="check that every reference resolves and the ledger agrees")
    verify.add_argument("--quick", action="store_true", help="compare lengths only, without reading the objects")
    _complete(verify, run_verify)

    finishing = commands.add_parser("finish", help="make everything in flight visible")
    finishing.add_argument("--due", action="store_true", help="only files that their roll policy says are due")
    finishing.add_argument(
        "--give-up", metavar="FILE", action="append", default=[], help="leave out a file that cannot be published"
    )
    finishing.add_argument("--yes", action="store_true", help="really give up the files; without it they are shown")
    _complete(finishing, run_finish)

    clean = commands.add_parser("clean", help="show, and with --yes remove, what nothing names any more")
    doing = clean.add_mutually_exclusive_group()
    doing.add_argument("--dry-run", action="store_true", help="only show it (the default)")
    doing.add_argument("--yes", action="store_true", help="remove it")
    clean.add_argument(
        "--gone-job",
        metavar="ID",
        action="append",
        default=[],
        help="also what a job left in the target whose state and checkpoint you have deleted for good",
    )
    _complete(clean, run_clean)
    return parser


def _complete(parser: argparse.ArgumentParser, run: object) -> None:
    parser.add_argument("state", metavar="STATE", help="stateLocation, <checkpointLocation>/icefloe unless it was set")
    parser.add_argument("--job", help="the job's id, or how it begins, where a location holds several")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        type=_key_and_value,
        help="an option of the sink that is not in the state, such as a secret; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(run=run)


def _key_and_value(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text
