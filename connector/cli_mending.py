"""The commands that check and mend: ``verify``, ``finish`` and ``clean``."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from icefloe.connector.cleaning import CleaningPlan, plan_cleaning, remove_leftovers
from icefloe.connector.cli_output import print_json, print_line, show_bytes
from icefloe.connector.cli_views import FOUND, OK, options_of
from icefloe.connector.finish import finish
from icefloe.connector.giving_up import chosen_files
from icefloe.connector.inspection import opener, read_steadily
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
    """Make what is in flight visible; files to be given up are shown first, and only left out with ``--yes``."""
    options = options_of(parsed)
    if parsed.give_up and not parsed.yes:
        return _show_given_up(parsed)
    result = finish(parsed.state, job=parsed.job, options=options, due_only=parsed.due, give_up=parsed.give_up)
    if parsed.json:
        print_json(asdict(result))
    elif not result.files:
        print_line(f"job {result.job_id}: nothing is in flight" + (" that is due" if parsed.due else ""))
    else:
        print_line(f"job {result.job_id}: {result.rows:,} rows in {len(result.files)} files are visible now")
        for name in result.files:
            print_line(f"  {name}")
    return OK


def _show_given_up(parsed: argparse.Namespace) -> int:
    open_one = opener(parsed.state, parsed.job, options_of(parsed))
    chosen = read_steadily(open_one, lambda job: chosen_files(job, parsed.give_up))
    if parsed.json:
        print_json({"would_give_up": [asdict(file) for file in chosen]})
        return OK
    print_line("these rows would be lost for ever; nothing was done:", style="bold red")
    for file in chosen:
        where = f" of {file.partition}" if file.partition else ""
        state = "finished" if file.finished else "in flight"
        print_line(f"  {file.name} ({state}): {file.rows:,} rows{where}, {show_bytes(file.size_bytes)}")
    print_line("run it again with --yes to leave them out and make the rest visible")
    return OK


def run_clean(parsed: argparse.Namespace) -> int:
    """Show what nothing names any more, and remove it with ``--yes``."""
    open_one = opener(parsed.state, parsed.job, options_of(parsed))
    plan = read_steadily(open_one, lambda job: plan_cleaning(job, parsed.state, parsed.gone_job))
    removed = remove_leftovers(plan) if parsed.yes else 0
    if parsed.json:
        shown = [
            {"kind": x.kind, "name": x.name, "job": x.job_id, "epoch": x.epoch, "bytes": x.size_bytes, "why": x.why}
            for x in plan.leftovers
        ]
        print_json({"job": plan.job_id, "removed": removed, "leftovers": shown, "other_jobs": plan.other_jobs})
        return OK
    _print_leftovers(plan, removed, yes=parsed.yes)
    return OK


def _print_leftovers(plan: CleaningPlan, removed: int, *, yes: bool) -> None:
    size = show_bytes(sum(leftover.size_bytes or 0 for leftover in plan.leftovers))
    if not plan.leftovers:
        print_line(f"job {plan.job_id}: there is nothing to clean up")
    elif yes:
        print_line(f"job {plan.job_id}: removed {removed} things, {size}", style="bold")
    else:
        print_line(f"job {plan.job_id}: {len(plan.leftovers)} things may go, {size}; nothing was removed", style="bold")
    for leftover in plan.leftovers:
        print_line(f"  {leftover.kind}: {leftover.name} ({leftover.why})")
    if plan.leftovers and not yes:
        print_line("run it again with --yes to remove them")
    for other in plan.other_jobs:
        print_line(f"left alone: job {other} has something in the target and no state here; if state and checkpoint")
        print_line(f"  of it are deleted for good, --gone-job {other} cleans up after it")
