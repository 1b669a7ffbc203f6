"""What the sink reads of Spark's checkpoint, and that it reads as empty where it cannot be read."""

from __future__ import annotations

from pathlib import Path

from icefloe.connector.checkpoint_log import CheckpointLog

ENTRY = 'v1\n{"batchWatermarkMs":1234,"batchTimestampMs":99}\n{"logOffset":3}\n{"events":{"0":17}}'


def test_job_offsets_and_watermark_are_read(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"job-1"}')
    (tmp_path / "offsets").mkdir()
    for number in (2, 10, 9):
        (tmp_path / "offsets" / str(number)).write_text(ENTRY)
    (tmp_path / "offsets" / ".10.crc").write_text("x")
    log = CheckpointLog(str(tmp_path))
    latest = log.latest()
    assert log.job_id() == "job-1"
    assert latest is not None
    assert (latest.batch_id, latest.watermark_ms) == (10, 1234)
    assert latest.offsets == ('{"logOffset":3}', '{"events":{"0":17}}')


def test_the_digest_covers_the_whole_entry(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(ENTRY)
    (tmp_path / "offsets" / "1").write_text(ENTRY.replace("99", "98"))
    log = CheckpointLog(str(tmp_path))
    first, second = log.entry(0), log.entry(1)
    assert first is not None
    assert second is not None
    assert first.digest != second.digest


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    for location in (None, "s3://bucket/checkpoint", str(tmp_path / "missing")):
        log = CheckpointLog(location)
        assert (log.job_id(), log.latest(), log.entry(0)) == (None, None, None)
