"""The one Spark session of a test process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession


@contextmanager
def running_spark(scratch: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A local session whose files all lie in ``scratch``; its JVM ends with this process at the latest.

    ``settings`` go over those that every test has.
    """
    os.environ["PYSPARK_PYTHON"] = (settings or {}).get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    configured = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} -Djava.io.tmpdir={scratch}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Below this value Spark measures its whole Arrow batch after every row (docs/decisions).
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.log.level": "ERROR",
        **(settings or {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("icefloe-tests")
    session = builder.config(map=configured).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
