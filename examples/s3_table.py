"""Stream rows into an Iceberg table on S3, or on a server that speaks its protocol, and read them back.

    moto_server -p 5555 &        # a local S3 for trying things out: pip install "moto[server]" in a venv of its own
    export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1
    python examples/s3_table.py s3://demo/lake --endpoint http://127.0.0.1:5555 --create-bucket

Data, table metadata and the state of the sink are in the bucket. Spark's own checkpoint and the catalog are local
(Spark's wheel cannot write to S3 without a JAR): --local says where; keep it, it belongs to the stream.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import icefloe

ROWS_PER_BATCH = 10_000
BATCHES = 4


def main(location: str, local: Path, endpoint: str | None) -> None:
    catalog = {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{local}/catalog.db",
        "catalog.warehouse": f"{location}/tables",
    }
    # Keys come from the environment, as with every AWS tool; s3.access-key-id and s3.secret-access-key would do, too.
    s3 = {"s3.region": os.environ.get("AWS_REGION", "us-east-1"), **({"s3.endpoint": endpoint} if endpoint else {})}
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    icefloe.register(spark)

    make_events(spark, local / "events")
    events = spark.readStream.schema("id LONG, user STRING, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
    query = (
        events.parquet(str(local / "events"))
        .writeStream.format("icefloe")
        .options(table="demo.events", partitionBy="day(ts)", visibility="roll", **catalog, **s3)
        .option("stateLocation", f"{location}/state")
        .option("checkpointLocation", str(local / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()

    print(f"rows in the table while its files are in flight: {count(catalog, s3)}")
    result = icefloe.finish(f"{location}/state", options={**catalog, **s3})
    print(f"icefloe finish made {result.rows:,} rows visible in {len(result.files)} files")
    print(f"rows in the table: {count(catalog, s3)}")
    print(f"\nlook around: icefloe status {location}/state")


def make_events(spark: SparkSession, folder: Path) -> None:
    """Write the source: one file for each micro-batch."""
    if folder.exists():
        return
    rows = spark.range(0, ROWS_PER_BATCH * BATCHES, 1, BATCHES)
    rows.selectExpr(
        "id", "concat('user-', id % 100) AS user", "timestamp_seconds(1767225600 + id * 4) AS ts"
    ).write.parquet(str(folder))


def count(catalog: dict[str, str], s3: dict[str, str]) -> int:
    """Count the rows with PyIceberg, as any reader sees them."""
    from pyiceberg.catalog import load_catalog

    properties = {key.removeprefix("catalog."): value for key, value in catalog.items()}
    opened = load_catalog("default", **properties, **s3)
    rows = opened.load_table("demo.events").scan().count()
    opened.close()
    return rows


def create_bucket(location: str, endpoint: str | None) -> None:
    import s3fs

    s3fs.S3FileSystem(endpoint_url=endpoint).makedirs(location.removeprefix("s3://").split("/")[0], exist_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Stream rows into an Iceberg table on S3.")
    parser.add_argument("location", help="s3://bucket/prefix")
    parser.add_argument("--endpoint", help="address of a store that is not AWS")
    parser.add_argument("--local", type=Path, help="folder for checkpoint and catalog")
    parser.add_argument("--create-bucket", action="store_true")
    given = parser.parse_args()
    if given.create_bucket:
        create_bucket(given.location, given.endpoint)
    local = given.local.resolve() if given.local else Path(tempfile.mkdtemp(prefix="icefloe-"))
    main(given.location.rstrip("/"), local, given.endpoint)
