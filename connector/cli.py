"""The ``icefloe`` command: look at a job's state and put things right, without reading code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from icefloe.connector.finish import finish
from icefloe.errors import IcefloeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 refused with a message, 2 wrong usage."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except IcefloeError as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="icefloe", description="Look at and mend the state of icefloe streams.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    finishing = commands.add_parser("finish", help="make everything in flight visible")
    _add_location(finishing)
    finishing.add_argument("--due", action="store_true", help="only files that their roll policy says are due")
    finishing.set_defaults(run=_finish)
    return parser


def _add_location(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("state", help="the stateLocation of the query (<checkpointLocation>/icefloe unless set)")
    parser.add_argument("--job", help="the job's id, or how it begins, where a location holds several")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the sink, such as a secret"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")


def _options(parsed: argparse.Namespace) -> dict[str, str]:
    return dict(text.partition("=")[::2] for text in parsed.option)


def _finish(parsed: argparse.Namespace) -> int:
    result = finish(parsed.state, job=parsed.job, options=_options(parsed), due_only=parsed.due)
    if parsed.json:
        print(json.dumps(asdict(result)))
    elif not result.files:
        print(f"job {result.job_id}: nothing is in flight")
    else:
        print(f"job {result.job_id}: {result.rows} rows in {len(result.files)} files are visible now")
        for name in result.files:
            print(f"  {name}")
    return 0
