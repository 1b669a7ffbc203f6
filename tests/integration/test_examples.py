"""The examples run as a user would run them, on a clean folder and on a local S3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.s3_service import Bucket

# Several JVMs one after the other: on a busy machine each takes a minute to start.
pytestmark = pytest.mark.timeout(600)

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(scratch: Path, name: str, *arguments: str, **env: str) -> str:
    # A JVM that is killed leaves its files, so they lie where the test ends with them.
    places = {"SPARK_LOCAL_DIRS": str(scratch), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **places, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@pytest.mark.faults
def test_rows_survive_two_kills_and_a_lost_checkpoint(tmp_path: Path) -> None:
    shown = run_example(tmp_path, "recover_after_crash.py", str(tmp_path / "demo"))
    assert "sound" in shown
    assert "are visible now" in shown
    assert shown.rstrip().endswith("every one of them is there, once")


def test_a_table_on_s3_gets_its_rows(moto_bucket: Bucket, tmp_path: Path) -> None:
    keys = {
        "AWS_ACCESS_KEY_ID": moto_bucket.service.access_key_id,
        "AWS_SECRET_ACCESS_KEY": moto_bucket.service.secret_access_key,
        "AWS_REGION": moto_bucket.service.region,
    }
    endpoint = moto_bucket.service.endpoint
    shown = run_example(
        tmp_path, "s3_table.py", f"{moto_bucket.url}/lake", "--endpoint", endpoint, "--local", str(tmp_path), **keys
    )
    assert "rows in the table while its files are in flight: 0" in shown
    assert shown.count("40,000") == 1
    assert "rows in the table: 40000" in shown
    status = subprocess.run(
        [
            sys.executable,
            "-m",
            "icefloe",
            "status",
            f"{moto_bucket.url}/lake/state",
            "--option",
            f"s3.endpoint={endpoint}",
        ],
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "published" in status.stdout, status.stdout + status.stderr


def test_any_source_reaches_a_table(tmp_path: Path) -> None:
    shown = run_example(tmp_path, "kafka_to_iceberg.py", "--folder", str(tmp_path / "demo"), "--batches", "2")
    assert "are visible now" in shown
