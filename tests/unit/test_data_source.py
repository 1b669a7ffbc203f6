"""The writer that Spark pickles: refuses modes by name, plans once, and takes nothing heavy to the executors."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from icefloe.connector.data_source import CommitMessage, IcefloeDataSource, IcefloeStreamWriter
from icefloe.connector.messages import TaskReport
from icefloe.errors import OptionError
from pyspark_icefloe import DefaultSource
from support.verifier import local_files

SCHEMA = StructType([StructField("id", LongType()), StructField("region", StringType())])


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    # Spark hands keys on in lower case.
    return {"path": str(tmp_path / "out"), "checkpointlocation": str(tmp_path / "checkpoint")}


def report(job_id: str = "job") -> TaskReport:
    return TaskReport(job_id, 0, -1, "", 0, "0" * 32, 1, None)


def test_spark_finds_the_sink_under_its_name() -> None:
    assert DefaultSource is IcefloeDataSource
    assert DefaultSource.name() == "icefloe"


def test_complete_mode_and_overwrite_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"ICEFLOE_MODE_UNSUPPORTED: complete mode"):
        IcefloeDataSource(options).streamWriter(SCHEMA, overwrite=True)
    with pytest.raises(OptionError, match=r"ICEFLOE_MODE_UNSUPPORTED: icefloe only appends"):
        IcefloeDataSource(options).writer(SCHEMA, overwrite=True)


def test_a_writer_survives_pickling_with_its_settings(options: dict[str, str], tmp_path: Path) -> None:
    writer = IcefloeDataSource(options).streamWriter(SCHEMA, overwrite=False)
    again = pickle.loads(cloudpickle.dumps(writer))
    assert again._settings == writer._settings
    assert again._settings.plan.schema.equals(pa.schema({"id": pa.int64(), "region": pa.string()}))
    assert local_files(tmp_path) == [], "planning wrote something"


def test_the_source_that_travels_to_the_commit_plans_nothing(options: dict[str, str]) -> None:
    source = pickle.loads(cloudpickle.dumps(IcefloeDataSource(options)))
    assert source.streamWriter(SCHEMA, overwrite=False)._settings is None


def test_messages_of_a_continuous_trigger_are_refused(options: dict[str, str], tmp_path: Path) -> None:
    writer = IcefloeDataSource(options).streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(OptionError, match="ICEFLOE_TRIGGER_UNSUPPORTED"):
        writer.commit([None, None], 0)
    with pytest.raises(OptionError, match="ICEFLOE_TRIGGER_UNSUPPORTED"):
        writer.commit([CommitMessage(report()), None], 0)
    assert local_files(tmp_path) == []


def test_a_writer_outside_of_a_micro_batch_is_refused_where_the_checkpoint_tells(
    options: dict[str, str], tmp_path: Path
) -> None:
    """Spark swallows what a commit raises under a continuous trigger, so that it must not come so far."""
    checkpoint = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "job"}')
    source = IcefloeDataSource(options)
    with pytest.raises(OptionError, match="ICEFLOE_TRIGGER_UNSUPPORTED: no micro-batch is begun"):
        source.streamWriter(SCHEMA, overwrite=False)
    (checkpoint / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{}')
    source.streamWriter(SCHEMA, overwrite=False)
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    with pytest.raises(OptionError, match="ICEFLOE_TRIGGER_UNSUPPORTED"):
        source.streamWriter(SCHEMA, overwrite=False)


def test_abort_only_logs(options: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = IcefloeDataSource(options)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept.parquet").touch()
    with caplog.at_level(logging.WARNING, logger="icefloe"):
        source.streamWriter(SCHEMA, overwrite=False).abort([CommitMessage(report())], 7)
        source.writer(SCHEMA, overwrite=False).abort([None])
    assert "batch 7" in caplog.text
    assert local_files(tmp_path) == [tmp_path / "out" / "kept.parquet"]


def test_secrets_are_in_no_repr_of_what_travels(options: dict[str, str]) -> None:
    given = {**options, "path": "s3://bucket/out", "s3.secret-access-key": "hush", "s3.region": "us-east-1"}
    writer = IcefloeDataSource(given).streamWriter(SCHEMA, overwrite=False)
    assert isinstance(writer, IcefloeStreamWriter)
    assert "hush" not in repr(writer._settings) + repr(writer._options)


def test_a_task_loads_neither_pyiceberg_nor_pandas(options: dict[str, str]) -> None:
    script = (
        "import json, sys\n"
        "from icefloe.connector import data_source, subtask_writer, task\n"
        "print(json.dumps([name for name in ('pyiceberg', 'pandas', 'sqlalchemy', 'boto3', 'rich', 's3fs') "
        "if name in sys.modules]))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == []
