"""Iceberg's own Spark runtime, in a process and an environment of its own, on a table of the embedded catalog.

Run as a script by the Python of that environment (``.ci/iceberg-spark`` makes it), this file answers SQL statements,
one JSON line each. It imports nothing of this project.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Under this name the embedded catalog keeps its tables, so it is the catalog's name in SQL too.
CATALOG = "icefloe"
_SPARKS_OWN = ("SPARK_", "PYSPARK_", "PYTHONPATH")


class IcebergSpark:
    """A running Spark with Iceberg's runtime, asked in SQL."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, statement: str) -> list[list[Any]]:
        """Run one statement and return its rows. Raises ``AssertionError`` with Spark's message when it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Iceberg's Spark ended with exit code {self._process.wait()} at: {statement}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        rows: list[list[Any]] = answer["rows"]
        return rows


@contextmanager
def running_iceberg_spark(environment: Path, warehouse: Path, scratch: Path) -> Iterator[IcebergSpark]:
    """Iceberg's Spark over the embedded catalog of ``warehouse``; its JVM ends with the block."""
    process = subprocess.Popen(
        [str(environment / "bin" / "python"), __file__, str(environment / "jars"), str(warehouse), str(scratch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith(_SPARKS_OWN)},
        text=True,
    )
    with process:
        try:
            yield IcebergSpark(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _answer(jars: str, warehouse: str, scratch: str) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(str(jar) for jar in Path(jars).iterdir()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "jdbc",
        f"spark.sql.catalog.{CATALOG}.uri": f"jdbc:sqlite:{warehouse}/catalog.db",
        f"spark.sql.catalog.{CATALOG}.warehouse": warehouse,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    # What Spark itself prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    for line in sys.stdin:
        try:
            rows = [list(row) for row in spark.sql(json.loads(line)).collect()]
            answer = {"rows": rows}
        except Exception as error:  # noqa: BLE001 - the one who asked gets it
            answer = {"error": str(error)}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    _answer(*sys.argv[1:])
