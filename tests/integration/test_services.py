"""The services that other tests stand on behave as those tests assume, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from support.ports import free_ports
from support.processes import Launch, start
from support.s3_service import Bucket, S3Service
from support.seaweed import Seaweed

SUPPORT = Path(__file__).parent.parent


def is_listening(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((str(address.hostname), int(address.port or 0))) == 0


def wait_until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.05)


def test_free_ports_are_all_different() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50


@pytest.mark.parametrize("name", ["moto_bucket", "seaweed_bucket"])
def test_put_if_absent_is_refused_the_second_time(name: str, request: pytest.FixtureRequest) -> None:
    bucket: Bucket = request.getfixturevalue(name)
    client = bucket.service.client()
    client.put_object(Bucket=bucket.name, Key="once", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket.name, Key="once", Body=b"2", IfNoneMatch="*")
    assert bucket.keys() == ["once"]


@pytest.mark.parametrize("name", ["moto_bucket", "seaweed_bucket"])
def test_an_upload_that_was_begun_is_seen_until_it_is_aborted(name: str, request: pytest.FixtureRequest) -> None:
    bucket: Bucket = request.getfixturevalue(name)
    client = bucket.service.client()
    upload = client.create_multipart_upload(Bucket=bucket.name, Key="begun")["UploadId"]
    assert bucket.open_uploads() == ["begun"]
    client.abort_multipart_upload(Bucket=bucket.name, Key="begun", UploadId=upload)
    assert bucket.open_uploads() == []


def test_seaweed_refuses_a_wrong_secret(seaweed: Seaweed) -> None:
    stranger = S3Service(seaweed.s3.endpoint, seaweed.s3.access_key_id, "wrong")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        stranger.client().list_buckets()


def test_seaweed_serves_an_iceberg_rest_catalog(seaweed: Seaweed) -> None:
    catalog = load_catalog("rest", **seaweed.catalog_properties(seaweed.new_warehouse()))
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", schema=pa.schema([("a", pa.int64())]))
    table.append(pa.table({"a": [1, 2]}))
    assert table.scan().to_arrow().column("a").to_pylist() == [1, 2]


def test_moto_serves_glue(moto_service: S3Service) -> None:
    glue = moto_service.client("glue")
    # The server is shared by the whole run, so other tests' databases may be there too.
    name = f"ns_{uuid.uuid4().hex}"
    glue.create_database(DatabaseInput={"Name": name})
    assert name in [each["Name"] for each in glue.get_databases()["DatabaseList"]]


def test_a_stopped_service_leaves_no_process_port_or_file(tmp_path: Path) -> None:
    forgotten = tmp_path / "forgotten.sock"

    def launch(_: Path) -> Launch:
        (port,) = free_ports(1)
        forgotten.touch()
        serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
        return Launch(serve, f"http://127.0.0.1:{port}/", {}, leftovers=[str(forgotten)])

    service = start("http", launch)
    assert is_listening(service.ready_url)
    service.stop()
    service.stop()
    assert not is_listening(service.ready_url)
    assert not service.scratch.exists()
    assert not forgotten.exists()
    assert service.guard.returncode == 0


def test_a_service_dies_with_a_test_run_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.seaweed import running_seaweed\n"
        "with running_seaweed() as weed:\n"
        "    print(weed.s3.endpoint, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script, str(SUPPORT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        text=True,
    )
    with run:
        assert run.stdout is not None
        endpoint = run.stdout.readline().strip()
        assert is_listening(endpoint)
        assert list(tmp_path.iterdir()) != []
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_listening(endpoint))
    wait_until(lambda: list(tmp_path.iterdir()) == [])


def test_a_service_that_cannot_start_says_why() -> None:
    def broken(_: Path) -> Launch:
        return Launch([sys.executable, "-c", "raise SystemExit('no such engine')"], "http://127.0.0.1:1/", {})

    with pytest.raises(RuntimeError, match="no such engine"):
        start("broken", broken)


def test_spark_runs_python_workers_of_this_interpreter(spark: SparkSession) -> None:
    executables = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert executables == [sys.executable]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
