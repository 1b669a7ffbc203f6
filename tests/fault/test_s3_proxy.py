"""Requests to S3 fail on the wire, before and after their effect: every row is in the target once, nothing is left.

The real client, tasks, committer, ``finish`` and clean-up talk to moto through a proxy that spoils chosen requests.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pytest

from icefloe.connector import iceberg_publish
from icefloe.connector.finish import finish
from icefloe.errors import IcefloeError, StorageError
from icefloe.state import crash_points
from icefloe.state.retrying import Retrier, RetryPolicy
from support.harness import EVENTS, event_rows
from support.matrix import scratch
from support.query_runs import QueryPlan, partitions
from support.s3_proxy import Chaos, Fault, Kind, Rule, S3Proxy, faults_of, s3_proxy
from support.s3_service import S3Service
from support.verifier import verify

MAX_RESTARTS = 30
# What a small query asks of S3 in its second batch and the ``finish`` after it; the others come only after a fault.
PATH_KINDS = (
    Kind.PUT,
    Kind.PUT_IF_ABSENT,
    Kind.GET,
    Kind.LIST,
    Kind.CREATE_UPLOAD,
    Kind.UPLOAD_PART,
    Kind.COMPLETE_UPLOAD,
    Kind.LIST_UPLOADS,
    Kind.DELETE_MANY,
)
TABLE_KINDS = (Kind.PUT, Kind.PUT_IF_ABSENT, Kind.GET, Kind.HEAD, Kind.LIST, Kind.DELETE_MANY)
REPEATED_KINDS = (Kind.PUT, Kind.GET, Kind.HEAD, Kind.LIST)
UPLOAD_KINDS = (Kind.CREATE_UPLOAD, Kind.UPLOAD_PART, Kind.COPY_PART, Kind.COMPLETE_UPLOAD)
IN_A_ROW = {Fault.THROTTLED: 2, Fault.DENIED: 2}
# Together no more in a row than one call tries.
MENDED_INSIDE = (
    (Fault.ERROR_BEFORE, Fault.THROTTLED, Fault.SLOW),
    (Fault.REPLY_LOST, Fault.ERROR_AFTER, Fault.REPLY_CUT),
    (Fault.ERROR_IN_BODY, Fault.WRONG_ETAG),
)
REFUSED = (Fault.DENIED, Fault.NO_SUCH_UPLOAD)


class Killed(BaseException):
    """Ends a driver at a crash point, as a kill would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallPlan(QueryPlan):
    """One file at a time: few requests, so that many queries can be run."""

    batches: int = 3
    rows: int = 8
    widened_from: int = 99

    def options(self) -> dict[str, str]:
        plain = {key: value for key, value in QueryPlan.options(self).items() if key != "partitionBy"}
        # Clean-up has something to remove from the second batch on.
        return {**plain, "keepEpochs": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LargePlan(SmallPlan):
    """Rows that do not compress, so that a file has several parts of S3's least size, and segments are copied."""

    row_bytes: int = 512 * 1024

    def options(self) -> dict[str, str]:
        sizes = {"rowGroupSize": "6MB", "rollFileSize": "64MB", "partSize": "5MB", "compression": "uncompressed"}
        return {**SmallPlan.options(self), **sizes}

    def rows_of(self, batch_id: int) -> pa.RecordBatch:
        rows = event_rows(batch_id * self.rows, self.rows)
        texts = [random.Random(i).randbytes(self.row_bytes // 2).hex() for i in rows["id"].to_pylist()]
        return rows.set_column(1, EVENTS.field("region"), pa.array(texts, pa.string()))


@pytest.fixture(scope="module")
def running_proxy(moto_service: S3Service) -> Iterator[S3Proxy]:
    with s3_proxy(moto_service) as proxy:
        yield proxy


@pytest.fixture
def proxy(running_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Proxy:
    """The proxy with nothing armed; the retries inside a call are as in production, with short waits."""
    monkeypatch.setattr("icefloe.state.s3_storage.Retrier", partial(Retrier, jitter=lambda most: most / 50))
    monkeypatch.setattr(iceberg_publish.RetryPolicy, "wait", lambda self, tries: None)
    running_proxy.reset()
    return running_proxy


Make = Callable[..., SmallPlan]


@pytest.fixture
def plan_of(proxy: S3Proxy) -> Iterator[Make]:
    """Makes queries whose state and data are in a bucket of their own, behind the proxy."""
    with scratch() as root:

        def make(target: str, visibility: str, kind: type[SmallPlan] = SmallPlan, **given: int) -> SmallPlan:
            bucket = proxy.behind.new_bucket()
            return kind(
                target=target,
                visibility=visibility,
                root=str(root / bucket.name),
                location=bucket.url,
                s3=proxy.service.options,
                **given,
            )

        yield make


def run_until_done(plan: QueryPlan, batches: Sequence[int], *, finishing: bool = True) -> list[IcefloeError]:
    """Run batches and ``finish`` as Spark would: again, as a fresh attempt, until they succeed. Returns what failed.

    Any error that is not one of Icefloe's is raised.
    """
    failed: list[IcefloeError] = []
    for batch_id in batches:
        _until_it_succeeds(failed, lambda restart, batch_id=batch_id: _run_batch(plan, batch_id, restart))
    if finishing and plan.visibility == "roll":
        _until_it_succeeds(failed, lambda _: finish(plan.state, options={**plan.s3, **plan.catalog()}))
    assert all(str(error).startswith("ICEFLOE_") for error in failed)
    return failed


def _run_batch(plan: QueryPlan, batch_id: int, restart: int) -> None:
    """Run a batch; a restart deals its rows to another number of tasks."""
    inputs = partitions(plan.rows_of(batch_id), 1 + restart % 2, restart)
    plan.harness(batch_id).run(batch_id, inputs)


def _until_it_succeeds(failed: list[IcefloeError], step: Callable[[int], object]) -> None:
    for restart in range(MAX_RESTARTS):
        try:
            step(restart)
            return
        except IcefloeError as error:
            failed.append(error)
    raise AssertionError(f"the query does not get over it: {failed[-1]}") from failed[-1]


def run_spoiled(plan: QueryPlan, proxy: S3Proxy, *rules: Rule) -> list[IcefloeError]:
    """Run the query's first batch well, the second against the rules, the last well; then verify all of it.

    The last one is there to clean up what faults left behind, as the next epoch of a running query does.
    """
    run_until_done(plan, [0], finishing=False)
    proxy.arm(*rules)
    failed = run_until_done(plan, [1])
    proxy.disarm()
    run_until_done(plan, [2])
    verify(replace(plan, s3=proxy.behind.options))
    return failed


def assert_all_were_met(rules: Sequence[Rule]) -> None:
    """A fault that never happens tests nothing."""
    unmet = [rule for rule in rules if rule.matched <= rule.skip]
    assert rules
    assert not unmet


def rules_for(faults: Sequence[Fault], kinds: Sequence[Kind]) -> list[Rule]:
    """Return rules by which the first requests of each kind meet these faults, one after the other."""
    rules: list[Rule] = []
    for kind in kinds:
        skip = 0
        for fault in faults:
            if fault in faults_of(kind):
                rules.append(Rule(fault, [kind], skip=skip, times=IN_A_ROW.get(fault, 1)))
                skip += rules[-1].times
    return rules


def seed() -> int:
    """Return the seed of this run; printed with a failure, so that it can be played again."""
    chosen = int(os.environ.get("ICEFLOE_SEED", "0")) or random.randrange(1, 10**6)
    print(f"ICEFLOE_SEED={chosen}")
    return chosen


@pytest.mark.parametrize(
    ("visibility", "faults"),
    [
        ("batch", MENDED_INSIDE[0]),
        pytest.param("roll", MENDED_INSIDE[0], marks=pytest.mark.faults),
        *itertools.product(["batch", "roll"], [*MENDED_INSIDE[1:], REFUSED]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].name.lower(),
)
def test_a_path_gets_over_faults_of_every_kind_of_request(
    visibility: str, faults: tuple[Fault, ...], proxy: S3Proxy, plan_of: Make
) -> None:
    rules = rules_for(faults, PATH_KINDS)
    failed = run_spoiled(plan_of("path", visibility), proxy, *rules)
    assert_all_were_met(rules)
    # What may be repeated is, inside the call: Spark learns only of what repeating would not mend.
    codes = {error.code for error in failed}
    assert ("ICEFLOE_STORAGE_DENIED" in codes) if faults is REFUSED else not codes


def test_a_table_gets_over_faults_of_every_kind_of_request(proxy: S3Proxy, plan_of: Make) -> None:
    rules = rules_for([Fault.REPLY_LOST, Fault.DENIED], TABLE_KINDS)
    run_spoiled(plan_of("table", "batch"), proxy, *rules)
    assert_all_were_met(rules)


@pytest.mark.parametrize(
    ("target", "visibility"),
    [("path", "batch"), ("path", "roll"), pytest.param("table", "roll", marks=pytest.mark.faults)],
)
def test_parts_and_copied_parts_of_large_files_get_over_faults(
    target: str, visibility: str, proxy: S3Proxy, plan_of: Make
) -> None:
    faults = [Fault.REPLY_LOST, Fault.ERROR_IN_BODY, Fault.ERROR_AFTER, Fault.WRONG_ETAG]
    kinds = [kind for kind in UPLOAD_KINDS if kind is not Kind.COPY_PART or visibility == "roll"]
    rules = rules_for(faults, kinds)
    rows = 26 if visibility == "batch" else 13
    assert run_spoiled(plan_of(target, visibility, LargePlan, rows=rows), proxy, *rules) == []
    assert_all_were_met(rules)


def test_an_outage_longer_than_the_tries_of_a_call_fails_the_epoch_and_the_next_attempt_succeeds(
    proxy: S3Proxy, plan_of: Make
) -> None:
    kinds = (Kind.PUT, Kind.PUT_IF_ABSENT, Kind.GET, Kind.LIST, Kind.COMPLETE_UPLOAD)
    rules = [Rule(Fault.ERROR_BEFORE, [kind], times=RetryPolicy().max_tries) for kind in kinds]
    failed = run_spoiled(plan_of("path", "roll"), proxy, *rules)
    assert [error.code for error in failed] == ["ICEFLOE_STORAGE_FAILED"] * len(kinds)


def test_a_record_that_landed_without_any_answer_is_found_and_published_once(proxy: S3Proxy, plan_of: Make) -> None:
    record = Rule(Fault.ERROR_AFTER, [Kind.PUT_IF_ABSENT], "checkpoint.metadata", times=RetryPolicy().max_tries)
    assert run_spoiled(plan_of("path", "batch"), proxy, record) == []
    assert_all_were_met([record])


@pytest.mark.parametrize("kind", [Kind.PUT_IF_ABSENT, Kind.DELETE], ids=["its second put", "its delete"])
def test_a_probe_for_conditional_puts_that_is_refused_half_way_leaves_nothing(
    kind: Kind, proxy: S3Proxy, plan_of: Make
) -> None:
    refused = Rule(Fault.DENIED, [kind], "/probe-", skip=1 if kind is Kind.PUT_IF_ABSENT else 0)
    proxy.arm(refused)
    plan = plan_of("path", "batch", batches=1)
    (error,) = run_until_done(plan, [0])
    assert error.code == "ICEFLOE_STORAGE_DENIED"
    assert_all_were_met([refused])
    verify(replace(plan, s3=proxy.behind.options))


def test_a_repeated_complete_that_finds_no_upload_is_recognised_as_done(proxy: S3Proxy, plan_of: Make) -> None:
    rules = [
        Rule(Fault.REPLY_LOST, [Kind.COMPLETE_UPLOAD]),
        Rule(Fault.NO_SUCH_UPLOAD, [Kind.COMPLETE_UPLOAD], skip=1),
    ]
    assert run_spoiled(plan_of("path", "batch"), proxy, *rules) == []
    assert_all_were_met(rules)


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """The block must end at this crash point."""

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    crash_points.arm(kill)
    try:
        with pytest.raises(Killed):
            yield
    finally:
        crash_points.arm(None)


def end_uploads(plan: QueryPlan) -> int:
    """End every open upload, as a bucket's lifecycle rule does; returns how many there were."""
    service, name = plan.s3, plan.location.removeprefix("s3://")
    client = boto3.client(
        "s3",
        endpoint_url=service["s3.endpoint"],
        region_name=service["s3.region"],
        aws_access_key_id=service["s3.access-key-id"],
        aws_secret_access_key=service["s3.secret-access-key"],
    )
    uploads = client.list_multipart_uploads(Bucket=name).get("Uploads", [])
    for upload in uploads:
        client.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
    client.close()
    return len(uploads)


def test_an_upload_that_ended_between_record_and_publication_is_composed_again(proxy: S3Proxy, plan_of: Make) -> None:
    plan = plan_of("path", "roll")
    run_until_done(plan, [0])
    with killed_at("commit.operators-written"):
        run_until_done(plan, [1])
    assert end_uploads(plan) == 1
    # Killed once more with the upload known to be gone, and a lost reply when it is begun anew.
    with killed_at("file.upload-gone"):
        run_until_done(plan, [1])
    begun = Rule(Fault.REPLY_LOST, [Kind.CREATE_UPLOAD])
    proxy.arm(begun)
    assert run_until_done(plan, [1, 2]) == []
    assert_all_were_met([begun])
    verify(replace(plan, s3=proxy.behind.options))


def test_a_recorded_file_of_a_table_that_may_not_be_looked_at_is_a_typed_error(proxy: S3Proxy, plan_of: Make) -> None:
    plan = plan_of("table", "batch", batches=1)
    with killed_at("commit.operators-written"):
        run_until_done(plan, [0])
    looked = Rule(Fault.DENIED, [Kind.HEAD], ".parquet")
    proxy.arm(looked)
    (error,) = run_until_done(plan, [0])
    assert error.code == "ICEFLOE_TABLE_DENIED"
    assert_all_were_met([looked])
    verify(replace(plan, s3=proxy.behind.options))


def test_an_upload_that_ended_and_held_the_only_copy_is_told_by_name(plan_of: Make) -> None:
    plan = plan_of("path", "batch")
    with killed_at("commit.operators-written"):
        run_until_done(plan, [0])
    assert end_uploads(plan) == 1
    with pytest.raises(StorageError, match=r"ICEFLOE_FILE_LOST: .*\.parquet \(8 rows"):
        finish(plan.state, options=plan.s3)


@pytest.mark.parametrize(
    ("target", "visibility"),
    [
        ("path", "roll"),
        pytest.param("path", "batch", marks=pytest.mark.faults),
        pytest.param("table", "batch", marks=pytest.mark.faults),
        pytest.param("table", "roll", marks=pytest.mark.faults),
    ],
)
def test_faults_on_a_tenth_of_all_requests_neither_lose_nor_double_a_row(
    target: str, visibility: str, proxy: S3Proxy, plan_of: Make
) -> None:
    plan = plan_of(target, visibility, batches=10, rows=4)
    # Making a table is the catalog's own, with leftovers of its own.
    run_until_done(plan, [0], finishing=False)
    proxy.arm(Chaos(seed(), share=0.1))
    run_until_done(plan, range(1, plan.batches - 1))
    assert len(proxy.hits()) > len(proxy.noted) * 0.05
    proxy.disarm()
    run_until_done(plan, [plan.batches - 1])
    verify(replace(plan, s3=proxy.behind.options))


@pytest.mark.faults
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("visibility", ["batch", "roll"])
@pytest.mark.parametrize("target", ["path", "table"])
def test_one_fault_at_any_request_of_a_batch_neither_loses_nor_doubles_a_row(
    target: str, visibility: str, fault: Fault, proxy: S3Proxy, plan_of: Make
) -> None:
    kinds = PATH_KINDS if target == "path" else TABLE_KINDS
    can_meet = [kind for kind in kinds if fault in faults_of(kind)]
    if not can_meet:
        assert (target, fault) in [("table", f) for f in (Fault.NO_SUCH_UPLOAD, Fault.WRONG_ETAG, Fault.ERROR_IN_BODY)]
        return
    drawn = random.Random(seed())
    kind = drawn.choice(can_meet)
    rule = Rule(fault, [kind], skip=drawn.randrange(2) if kind in REPEATED_KINDS else 0)
    run_spoiled(plan_of(target, visibility), proxy, rule)
    assert_all_were_met([rule])


def test_the_proxy_leaves_no_thread_and_no_port(moto_service: S3Service) -> None:
    before = threading.active_count()
    with s3_proxy(moto_service) as proxy:
        bucket = replace(moto_service.new_bucket(), service=proxy.service)
        client = proxy.service.client()
        client.put_object(Bucket=bucket.name, Key="a b/ü", Body=b"x" * 100_000)
        assert bucket.keys() == ["a b/ü"]
        assert client.get_object(Bucket=bucket.name, Key="a b/ü")["Body"].read() == b"x" * 100_000
        # The connection is kept, and a thread waits for its next request.
        assert threading.active_count() > before + 1
    client.close()
    assert threading.active_count() == before
    address = urlsplit(proxy.service.endpoint)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port))
    assert [noted.request.key for noted in proxy.noted] == ["a b/ü", "", "a b/ü"]
