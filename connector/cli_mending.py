"""The commands that check and mend: ``verify``, ``finish`` and ``clean``."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from icefloe.connector.cli_output import print_json, print_line
from icefloe.connector.cli_views import FOUND, OK, options_of
from icefloe.connector.finish import finish
from icefloe.connector.inspection import opener
from icefloe.connector.verification import verify_steadily


def run_verify(parsed: argparse.Namespace) -> int:
    """Check everything that a restart would need; exit code 2 when something is wrong."""
    result = verify_steadily(opener(parsed.state, parsed.job, options_of(parsed)), quick=parsed.quick)
    if parsed.json:
        print_json({**asdict(result), "sound": result.is_sound})
        return OK if result.is_sound else FOUND
    print_line(f"job {result.job_id}", style="bold")
    looked = f"{result.records} records, {result.state_objects} state objects"
    print_line(
        f"  looked at {looked}, {result.in_flight_files} files in flight, {result.finished_files} finished files"
    )
    print_line(f"  last epoch {result.epoch}: {result.publication or 'nothing recorded'}")
    for finding in result.findings:
        style = "bold red" if finding.level == "error" else "yellow"
        print_line(f"  {finding.level}: {finding.object_name}: {finding.text}", style=style)
    print_line("  sound" if result.is_sound else "  damaged: see docs/operations.md", style="bold")
    return OK if result.is_sound else FOUND


def run_finish(parsed: argparse.Namespace) -> int:
    """Make what is in flight visible."""
    result = finish(parsed.state, job=parsed.job, options=options_of(parsed), due_only=parsed.due)
    if parsed.json:
        print_json(asdict(result))
    elif not result.files:
        print_line(f"job {result.job_id}: nothing is in flight" + (" that is due" if parsed.due else ""))
    else:
        print_line(f"job {result.job_id}: {result.rows:,} rows in {len(result.files)} files are visible now")
        for name in result.files:
            print_line(f"  {name}")
    return OK


def run_clean(parsed: argparse.Namespace) -> int:
    """Show what nothing names any more, and remove it with ``--yes``."""
    raise NotImplementedError
