"""A Spark application in a process of its own, which tests may kill: ``python stream_process.py SETTINGS``.

SETTINGS is JSON: the source folder, the sink's options, the number of tasks, and Spark's own configuration.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

_PATIENCE_SECONDS = 240


@contextmanager
def application(
    scratch: Path,
    source: Path,
    options: Mapping[str, str],
    *,
    tasks: int,
    gate: Path | None = None,
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a query over the files of ``source`` to its end; whatever is left of the process ends with the block.

    ``conf`` is Spark's configuration. Output goes to ``scratch/log.txt``.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    settings = {
        "scratch": str(scratch),
        "source": str(source),
        "options": dict(options),
        "tasks": tasks,
        "gate": str(gate) if gate else None,
        "conf": dict(conf or {}),
    }
    with (scratch / "log.txt").open("ab") as log:
        command = [sys.executable, __file__, json.dumps(settings)]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=scratch, env={**os.environ, **(env or {})})
    try:
        yield process
    finally:
        for each in [*family(process.pid), *([psutil.Process(process.pid)] if process.poll() is None else [])]:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait(_PATIENCE_SECONDS)


def family(pid: int) -> list[psutil.Process]:
    """Return all descendants of a process that are there now."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_jvm(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver's JVM as a machine would end it, and wait until the application has ended."""
    (jvm,) = [child for child in psutil.Process(process.pid).children() if child.name() == "java"]
    jvm.send_signal(signal.SIGKILL)
    # A Python worker that outlives its JVM ends when it finds its socket closed. Until then it is a writer that nobody
    # waits for, and the next run has to live with it.
    process.wait(_PATIENCE_SECONDS)


def executors(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the executor JVMs of a ``local-cluster`` application."""
    found = []
    for child in family(process.pid):
        try:
            if any("CoarseGrainedExecutorBackend" in part for part in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def _main(settings: Mapping[str, Any]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import icefloe
    from support.spark_session import running_spark
    from support.streams import EventFiles, Gate, run

    with running_spark(Path(settings["scratch"]), settings["conf"]) as spark:
        # Spark's own lookup sees no editable install from a folder other than the repository's.
        icefloe.register(spark)
        rows = EventFiles(Path(settings["source"])).read(spark).repartition(settings["tasks"])
        if settings["gate"] is not None:
            rows = Gate(Path(settings["gate"])).across(rows)
        run(rows, settings["options"])


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
