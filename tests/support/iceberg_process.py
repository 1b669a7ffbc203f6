"""A driver in a process of its own, for tests that kill it or let several meet on one catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from icefloe.connector.iceberg_table import IcebergTarget, TableSettings
from icefloe.proto import sink_pb2
from icefloe.state.crash_points import arm
from support.iceberg_tables import STREAM, Driver

KILLED = 77


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """Arguments of one driver process. ``die_at`` names the crash point at which it ends without a word."""

    warehouse: Path
    job: str
    epochs: int
    die_at: str = ""
    # A file with the DataFile messages to publish as epoch 0, instead of files of the process's own.
    files: Path | None = None

    def start(self) -> subprocess.Popen[str]:
        """Start it; the caller waits for it."""
        arguments = [str(self.warehouse), self.job, str(self.epochs), self.die_at, str(self.files or "")]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-m", "support.iceberg_process", *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self) -> int:
        """Run it to its end; returns its exit code, ``KILLED`` where it died as asked."""
        process = self.start()
        output, _ = process.communicate(timeout=240)
        assert process.returncode in (0, KILLED), output
        return process.returncode


def main(warehouse: str, job: str, epochs: str, die_at: str, files: str) -> None:
    """Publish epochs 0, 1, 2, ... of one job, the rows of job ``n`` starting at epoch ``n * 100``."""
    if die_at:
        arm(lambda point: os._exit(KILLED) if point == die_at else None)
    target = IcebergTarget.open(TableSettings("db.events", warehouse=warehouse), STREAM)
    driver = Driver(target, job)
    if files:
        given = sink_pb2.PreCommits.FromString(Path(files).read_bytes())
        driver.publish(0, list(given.files))
    else:
        first = int(job) * 100
        for epoch in range(int(epochs)):
            driver.publish(epoch, driver.files(first + epoch))
    target.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
