"""State is not trusted: its names stay in the locations, its bytes give typed errors, and no secret is in it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icefloe.connector.finish import finish
from icefloe.connector.messages import sink_record
from icefloe.connector.operator_state import PRECOMMIT, pre_commits
from icefloe.connector.options import OPTIONS, parse_options
from icefloe.connector.row_group_encoder import parse_footer
from icefloe.errors import CorruptStateError, IcefloeError, OptionError, StateError
from icefloe.proto import sink_pb2 as sink
from icefloe.proto import state_pb2 as pb
from icefloe.state import crash_points
from icefloe.state.object_names import record_name
from icefloe.state.opening import open_storage
from icefloe.state.records import Record, RecordLog
from icefloe.state.sealing import seal, unseal
from support.harness import Harness, event_rows
from support.matrix import Scenario, scratch
from support.query_runs import QueryPlan
from support.s3_service import Bucket
from support.verifier import load_table

OUTSIDE = ["../outside.parquet", "a/../../outside.parquet", "/tmp/outside.parquet", "s3://other/outside.parquet", ""]
SECRETS = {"s3.secret-access-key": "hush-hush-secret", "s3.session-token": "hush-hush-token"}


class StopHere(BaseException):
    """Ends a driver between two steps, as a kill would."""


def record_without_publishing(query: Harness, rows: int = 20) -> None:
    """Run batch 0 until its record is there and nothing is published."""

    def stop(point: str) -> None:
        if point == "commit.record-is-head":
            raise StopHere

    query.begin(0)
    reports = query.tasks(0, [[event_rows(0, rows)]])
    crash_points.arm(stop)
    try:
        with pytest.raises(StopHere):
            query.driver().commit(list(reports), 0)
    finally:
        crash_points.arm(None)


def forge(state: str, job_id: str, change: Callable[[sink.DataFile], None]) -> None:
    """Change the files that the head pre-commits, and seal the record again as an attacker could."""
    storage = open_storage(state)
    head = RecordLog(storage, job_id).head()
    assert head is not None
    for operator in head.metadata.operators:
        files = pre_commits(operator)
        for file in files:
            change(file)
        table = pb.GlobalKeyedTableSubtaskCheckpointMetadata.FromString(operator.subtask.table_metadata[PRECOMMIT].data)
        table.commit_data = sink.PreCommits(files=files).SerializeToString()
        operator.subtask.table_metadata[PRECOMMIT].data = table.SerializeToString()
    storage.put(record_name(job_id, head.epoch), seal(head.metadata))


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("field", ["name", "in_progress"])
def test_a_file_name_in_state_cannot_leave_a_directory(tmp_path: Path, name: str, field: str) -> None:
    query = Harness(tmp_path / "checkpoint", {"path": str(tmp_path / "deep" / "out")})
    record_without_publishing(query)
    forge(str(query.checkpoint / "icefloe"), query.job_id, lambda file: setattr(file, field, name))
    before = {path for path in tmp_path.rglob("*.parquet") if "out" not in path.parent.parts}
    if field == "in_progress" and not name:
        return
    with pytest.raises(IcefloeError, match="ICEFLOE_FILE"):
        finish(str(query.checkpoint / "icefloe"))
    outside = [p for p in tmp_path.rglob("outside*")] + [p for p in Path("/tmp").glob("outside.parquet")]
    assert outside == []
    assert {path for path in tmp_path.rglob("*.parquet") if "out" not in path.parent.parts} == before


@pytest.mark.parametrize("location", ["file:///etc/passwd", "s3://other/bucket.parquet", "{data}/../../x.parquet"])
def test_a_location_in_state_cannot_put_a_foreign_file_into_a_table(location: str) -> None:
    with scratch() as root:
        plan = Scenario("table", "batch").plan(root)
        query = plan.harness(0)
        record_without_publishing(query)
        data = load_table(plan).location_provider().data_path
        forge(plan.state, query.job_id, lambda file: setattr(file, "location", location.format(data=data)))
        with pytest.raises(IcefloeError, match="ICEFLOE_FILE_NAME_INVALID"):
            finish(plan.state, options=plan.catalog())
        assert load_table(plan).current_snapshot() is None


def test_a_segment_name_in_state_cannot_leave_the_state_location(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "state"))
    for name in ("../secret", "/etc/passwd", "a/../../b", ".icefloe/x", "a//b", "a\\b", "a\0b"):
        with pytest.raises(IcefloeError, match="ICEFLOE_STORAGE_KEY_INVALID"):
            storage.get(name)


def test_no_secret_reaches_state_logs_or_representations(
    moto_bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "icefloe")
    s3 = {**moto_bucket.options, **SECRETS}
    plan = QueryPlan(target="path", visibility="roll", root=str(tmp_path), location=moto_bucket.url, s3=s3)
    query = plan.harness(0)
    query.run(0, [[event_rows(0, 24)]])
    finish(plan.state, options=s3)
    settings_of_epoch = query.driver().prepare()
    client, names = moto_bucket.service.client(), moto_bucket.keys()
    stored = [client.get_object(Bucket=moto_bucket.name, Key=name)["Body"].read() for name in names]
    client.close()
    assert stored
    shown = [
        repr(parse_options({**plan.options(), "checkpointLocation": str(plan.checkpoint)})),
        repr(settings_of_epoch),
        repr(settings_of_epoch.plan),
        repr(open_storage(plan.state, s3)),
        caplog.text,
    ]
    for secret in SECRETS.values():
        assert not any(secret.encode() in data for data in stored)
        assert not any(secret in text for text in shown)


def test_no_secret_is_in_an_error(tmp_path: Path, moto_bucket: Bucket) -> None:
    s3 = {**moto_bucket.options, **SECRETS}
    options = {"path": "s3://no-such-bucket-here/out", "stateLocation": "s3://no-such-bucket-here/state", **s3}
    query = Harness(tmp_path / "checkpoint", options)
    with pytest.raises(IcefloeError) as raised:
        query.run(0, [[event_rows(0, 5)]])
    told = f"{raised.value!r} {raised.value} {raised.value.__cause__!r}"
    assert not any(secret in told for secret in SECRETS.values())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_in_place_of_a_record_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(StateError):
        unseal(data, pb.CheckpointMetadata, "a record")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_record_with_any_change_is_refused(data: st.DataObject) -> None:
    whole = seal(pb.CheckpointMetadata(job_id="job", epoch=3, payload=b"payload" * 10))
    cut = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.sampled_from(["cut", "flip", "add"]))
    changed = {
        "cut": whole[:cut],
        "flip": whole[:cut] + bytes([whole[cut] ^ data.draw(st.integers(1, 255))]) + whole[cut + 1 :],
        "add": whole + data.draw(st.binary(min_size=1, max_size=20)),
    }[change]
    with pytest.raises(StateError):
        unseal(changed, pb.CheckpointMetadata, "a record")


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=200))
def test_a_payload_that_was_sealed_by_somebody_else_is_a_typed_error_or_harmless(payload: bytes) -> None:
    operator = pb.OperatorCheckpointMetadata()
    operator.subtask.table_metadata[PRECOMMIT].data = payload
    for read in (
        lambda: pre_commits(operator),
        lambda: sink_record(_record(payload)),
    ):
        try:
            read()
        except (CorruptStateError, StateError):
            continue


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_in_place_of_a_footer_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(CorruptStateError):
        parse_footer(data)
    with pytest.raises(CorruptStateError):
        parse_footer(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.one_of(st.sampled_from([option.key for option in OPTIONS]), st.text(max_size=12)),
        st.one_of(st.text(max_size=20), st.sampled_from(["1KB", "15m", "true", "roll", "-1", "9" * 30, "zstd"])),
        max_size=5,
    )
)
def test_any_option_text_is_parsed_or_refused_with_a_typed_error(options: dict[str, str]) -> None:
    with suppress(OptionError):
        parse_options(options)


def _record(payload: bytes) -> Record:
    return Record(0, "", pb.CheckpointMetadata(payload=payload))
