"""Runs a function in a child forked from a warm process, so that being killed is real and costs milliseconds."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any

_PATIENCE_SECONDS = 120
# What children need: imported once in the process that they are forked from, which starts no thread.
_PRELOADED = [
    "pytest",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "sqlalchemy.dialects.sqlite",
    "icefloe.connector.driver",
    "icefloe.connector.finish",
    "icefloe.connector.iceberg_table",
    "icefloe.connector.s3_file_store",
    "icefloe.connector.table_target",
    "icefloe.connector.task",
    "icefloe.state.s3_storage",
    "icefloe.connector.cleaning",
    "icefloe.connector.iceberg_leftovers",
    "support.query_runs",
    "support.racing",
]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: with a value, with an error (its text), or killed."""

    value: Any = None
    error: str = ""
    killed: bool = False


def forking() -> ForkServerContext:
    """Return what forks children off a warm process. There is one such process for all, loaded by whoever is first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def run_in_child(function: Callable[..., Any], *arguments: Any, **named: Any) -> Ended:
    """Call a function of a module in a child and wait for its end. Safe from several threads at once.

    Raises ``AssertionError`` when the child neither answers nor dies, or dies otherwise than by SIGKILL.
    """
    context = forking()
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, function, arguments, named), daemon=True)
    child.start()
    there.close()
    try:
        assert here.poll(_PATIENCE_SECONDS), f"{function.__name__} is still running after {_PATIENCE_SECONDS} s"
        ended: Ended = here.recv()
    except EOFError:
        child.join(_PATIENCE_SECONDS)
        assert child.exitcode == -signal.SIGKILL, f"{function.__name__} ended with exit code {child.exitcode}"
        return Ended(killed=True)
    finally:
        here.close()
        if child.is_alive():
            child.join(5)
        if child.is_alive():
            child.kill()
            child.join()
    return ended


def _child(
    answer: Connection, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    try:
        ended = Ended(value=function(*arguments, **named))
    except BaseException:  # noqa: BLE001 - whatever it is, the test must see it
        ended = Ended(error=traceback.format_exc())
    answer.send(ended)
    answer.close()
