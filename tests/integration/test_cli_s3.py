"""Every command on state and data in S3: secrets by option, uploads that live, die or are left over."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from icefloe.connector.cli import main
from icefloe.state import crash_points
from support.harness import Harness, event_rows
from support.rows import assert_no_row_lost_or_doubled
from support.s3_service import Bucket


class Killed(BaseException):
    """Ends a commit at a crash point, as a kill would."""


def query_on(bucket: Bucket, tmp_path: Path, **options: str) -> Harness:
    given = {"path": f"{bucket.url}/out", "stateLocation": f"{bucket.url}/state", **bucket.options, **options}
    return Harness(tmp_path / "checkpoint", given)


def killed_after_record(query: Harness, batch: int, rows: int = 100) -> None:
    query.begin(batch)
    reports = query.tasks(batch, [[event_rows(batch * rows, rows)]])

    def kill(name: str) -> None:
        if name == "commit.operators-written":
            raise Killed

    crash_points.arm(kill)
    try:
        with pytest.raises(Killed):
            query.driver().commit(list(reports), batch)
    finally:
        crash_points.arm(None)


def secrets(bucket: Bucket) -> list[str]:
    return [word for key, value in bucket.options.items() for word in ("--option", f"{key}={value}")]


def ids(bucket: Bucket) -> list[int]:
    client = bucket.service.client()
    found: list[int] = []
    for key in bucket.keys("out/"):
        if key.endswith(".parquet"):
            body = client.get_object(Bucket=bucket.name, Key=key)["Body"].read()
            found += pq.read_table(io.BytesIO(body))["id"].to_pylist()
    client.close()
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(bucket: Bucket, command: str, *arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([command, f"{bucket.url}/state", "--json", *secrets(bucket), *arguments]) == code
        return json.loads(capsys.readouterr().out)

    return call


def test_every_command_on_s3(moto_bucket: Bucket, tmp_path: Path, run: Any) -> None:
    query = query_on(moto_bucket, tmp_path, visibility="roll", rowGroupSize="2KB")
    for batch in range(2):
        query.run(batch, [[event_rows(batch * 500, 500)]])
    (status,) = run(moto_bucket, "status")["jobs"]
    assert (status["rows_in_flight"], status["publication"]) == (1000, "published")
    assert run(moto_bucket, "files")["in_flight"][0]["row_groups"] > 0
    assert len(run(moto_bucket, "epochs")["epochs"]) == 2
    assert run(moto_bucket, "verify")["sound"] is True
    assert run(moto_bucket, "clean", "--yes")["leftovers"] == []
    assert run(moto_bucket, "finish")["rows"] == 1000
    assert_no_row_lost_or_doubled(ids(moto_bucket), range(1000))
    text = json.dumps([run(moto_bucket, name) for name in ("status", "files", "epochs", "verify", "clean")])
    assert moto_bucket.service.secret_access_key not in text


def test_wrong_keys_are_explained(seaweed_bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query_on(seaweed_bucket, tmp_path).run(0, [[event_rows(0, 10)]])
    wrong = [*secrets(seaweed_bucket), "--option", "s3.secret-access-key=wrong"]
    assert main(["status", f"{seaweed_bucket.url}/state", *wrong]) == 1
    assert capsys.readouterr().err.startswith("ICEFLOE_STORAGE_DENIED: ")


def test_an_upload_that_waits_is_alive_and_one_that_was_ended_is_told(
    moto_bucket: Bucket, tmp_path: Path, run: Any
) -> None:
    query = query_on(moto_bucket, tmp_path)
    killed_after_record(query, 0)
    assert len(moto_bucket.open_uploads()) == 1
    alive = run(moto_bucket, "verify")
    assert (alive["sound"], alive["publication"]) == (True, "waiting")
    assert run(moto_bucket, "clean", "--yes")["leftovers"] == []
    end_uploads(moto_bucket)
    found = run(moto_bucket, "verify", code=2)
    assert any("upload is gone" in finding["text"] for finding in found["findings"])


def test_uploads_of_lost_attempts_are_ended(moto_bucket: Bucket, tmp_path: Path, run: Any) -> None:
    query = query_on(moto_bucket, tmp_path)
    query.begin(0)
    query.tasks(0, [[event_rows(0, 100)]])
    (lost,) = moto_bucket.open_uploads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icefloe.connector.committer.Committer.clean_up", lambda *_: None)
        query.run(0, [[event_rows(0, 100)]])
    shown = run(moto_bucket, "clean")
    assert any(f"out/{leftover['name']}" == lost for leftover in shown["leftovers"])
    assert moto_bucket.open_uploads() == [lost]
    run(moto_bucket, "clean", "--yes")
    assert moto_bucket.open_uploads() == []
    assert_no_row_lost_or_doubled(ids(moto_bucket), range(100))


def test_lifecycle_rules_that_would_delete_rows_are_told(moto_bucket: Bucket, tmp_path: Path, run: Any) -> None:
    query_on(moto_bucket, tmp_path, visibility="roll").run(0, [[event_rows(0, 100)]])
    client = moto_bucket.service.client()
    client.put_bucket_lifecycle_configuration(
        Bucket=moto_bucket.name,
        LifecycleConfiguration={
            "Rules": [
                {"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "state/"}, "Expiration": {"Days": 30}},
                {
                    "ID": "b",
                    "Status": "Enabled",
                    "Filter": {"Prefix": ""},
                    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
                },
                {"ID": "c", "Status": "Disabled", "Filter": {"Prefix": "state/"}, "Expiration": {"Days": 2}},
                {"ID": "d", "Status": "Enabled", "Filter": {"Prefix": "other/"}, "Expiration": {"Days": 3}},
            ]
        },
    )
    client.close()
    found = run(moto_bucket, "verify")
    assert found["sound"] is True
    texts = [finding["text"] for finding in found["findings"]]
    assert any("after 30 days" in text for text in texts)
    assert any("ends unfinished uploads after 1 days" in text for text in texts)


def end_uploads(bucket: Bucket) -> None:
    client = bucket.service.client()
    for upload in client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", []):
        client.abort_multipart_upload(Bucket=bucket.name, Key=upload["Key"], UploadId=upload["UploadId"])
    client.close()
