"""Iceberg's own Spark streaming sink as a peer: a Spark of the version that it supports, in a process of its own.

Run as a script by the Python of the environment that ``.ci/iceberg-spark`` makes, this file runs one query per line of
its standard input and answers with its times. It lives through all rounds, so that its JVM is as warm as the others'.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENVIRONMENT = os.environ.get("ICEFLOE_ICEBERG_SPARK", "")


class IcebergSink:
    """The running peer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def stream(self, folder: Path, *, rows: int, batches: int, skip: int, compact: bool = False) -> dict[str, Any]:
        """Stream into a new table: the seconds of each micro-batch but the first, and of a compaction after them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {
            "checkpoint": f"{folder}/checkpoint",
            "rows": rows,
            "batches": batches,
            "skip": skip,
            "compact": compact,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def running_iceberg_sink(scratch: Path) -> Iterator[IcebergSink | None]:
    """The peer, or None where its environment was not made (no Maven Central)."""
    if not ENVIRONMENT:
        yield None
        return
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    process = subprocess.Popen(
        [f"{ENVIRONMENT}/bin/python", __file__, f"{ENVIRONMENT}/jars", str(scratch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=inherited,
        text=True,
    )
    with process:
        yield IcebergSink(process)
        assert process.stdin is not None
        process.stdin.close()


def _serve(jars: str, scratch: str) -> None:
    from pyspark.sql import SparkSession
    from spark_source import batch_seconds, settings, source

    own = {
        "spark.jars": ",".join(str(jar) for jar in Path(jars).iterdir()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.bench.type": "hadoop",
        "spark.sql.catalog.bench.warehouse": f"{scratch}/iceberg",
    }
    # What Spark itself prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = SparkSession.builder.master("local[2]").config(map={**settings(Path(scratch)), **own}).getOrCreate()
    for line in sys.stdin:
        asked = json.loads(line)
        columns = ", ".join(f"{name} {kind}" for name, kind in source(spark, 1).dtypes)
        spark.sql(
            f"CREATE TABLE bench.db.events ({columns}) USING iceberg TBLPROPERTIES "
            "('write.parquet.compression-codec' = 'zstd', 'write.target-file-size-bytes' = '67108864')"
        )
        stream = source(spark, asked["rows"]).writeStream.format("iceberg").outputMode("append")
        query = stream.option("checkpointLocation", asked["checkpoint"]).toTable("bench.db.events")
        answer: dict[str, Any] = {"seconds": batch_seconds(query, asked["batches"], skip=asked["skip"])}
        if asked["compact"]:
            answer["files"] = spark.table("bench.db.events.files").count()
            began = time.perf_counter()
            spark.sql("CALL bench.system.rewrite_data_files('db.events')").collect()
            answer["compaction_s"] = time.perf_counter() - began
        spark.sql("DROP TABLE bench.db.events PURGE")
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
