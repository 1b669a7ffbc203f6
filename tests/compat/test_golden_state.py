"""State that an older release wrote is continued by this one, file by file and row by row."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from icefloe.connector.finish import finish
from support.golden import BATCHES, BUCKET, ROWS, STATE, golden_query, run_batch
from support.rows import assert_no_row_lost_or_doubled
from support.s3_service import S3Service


@pytest.fixture
def golden_bucket(moto_service: S3Service) -> object:
    client = moto_service.client()
    client.create_bucket(Bucket=BUCKET)
    yield client
    for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()


def test_a_query_goes_on_from_state_of_version_1(
    tmp_path: Path, moto_service: S3Service, golden_bucket: object
) -> None:
    shutil.copytree(STATE, tmp_path / "checkpoint")
    query = golden_query(tmp_path / "checkpoint", moto_service)
    run_batch(query, BATCHES)
    finish(str(tmp_path / "checkpoint" / "icefloe"), options=moto_service.options)
    assert_no_row_lost_or_doubled(visible_ids(golden_bucket), range((BATCHES + 1) * ROWS))


def test_state_of_version_1_is_finished_without_its_query(
    tmp_path: Path, moto_service: S3Service, golden_bucket: object
) -> None:
    shutil.copytree(STATE, tmp_path / "checkpoint")
    finish(str(tmp_path / "checkpoint" / "icefloe"), options=moto_service.options)
    assert_no_row_lost_or_doubled(visible_ids(golden_bucket), range(BATCHES * ROWS))


def visible_ids(client: object) -> list[int]:
    keys = [e["Key"] for e in client.list_objects_v2(Bucket=BUCKET)["Contents"] if e["Key"].endswith(".parquet")]  # type: ignore[attr-defined]
    found: list[int] = []
    for key in keys:
        body = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()  # type: ignore[attr-defined]
        found += pq.read_table(io.BytesIO(body), columns=["id"])["id"].to_pylist()
    return found
