"""Logs of the sink: loggers ``icefloe.*``, each line with its job, epoch and subtask, for people or as JSON.

Spark starts the Python processes, so nobody can configure ``logging`` in them: the environment variable ``ICEFLOE_LOG``
does. It is a level (``info``), or a level and ``json`` (``info,json``).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from icefloe.connector.messages import sink_record
from icefloe.connector.operator_state import pre_commits
from icefloe.proto import sink_pb2 as sink
from icefloe.state.records import Record

ENVIRONMENT = "ICEFLOE_LOG"
_LEVELS = ("debug", "info", "warning", "error")
_FIELDS = "icefloe"

logger = logging.getLogger("icefloe.epoch")


_context: dict[str, Any] = {}


def set_context(*, job: str, epoch: int, subtask: int | None = None) -> None:
    """Say what this process works on from now on; every line carries it. A worker has one task at a time."""
    global _context
    _context = {"job": job, "epoch": epoch} | ({} if subtask is None else {"subtask": subtask})


def configure_from_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Send the sink's logs to stderr as ``ICEFLOE_LOG`` says; without it Python's own rules hold. Repeatable."""
    words = {word.strip().lower() for word in environment.get(ENVIRONMENT, "").split(",") if word.strip()}
    if not words:
        return
    root = logging.getLogger("icefloe")
    level = next((word for word in _LEVELS if word in words), "info")
    root.setLevel(level.upper())
    if any(isinstance(handler.formatter, _Lines | _JsonLines) for handler in root.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if "json" in words else _Lines())
    root.addHandler(handler)
    # Said once, here: a root handler that somebody else made would say it again.
    root.propagate = False
    if unknown := words - {*_LEVELS, "json"}:
        root.warning("%s has %s, which is no level and not json", ENVIRONMENT, ", ".join(sorted(unknown)))


class _Lines(logging.Formatter):
    """One line for people: time, level, logger, what the process works on, text."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(where)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        where = " ".join(f"{name} {value}" for name, value in _context.items())
        record.where = f"{where}: " if where and not record.getMessage().startswith("job ") else ""
        return super().format(record)


class _JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of the call."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_context,
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def log_epoch(record: Record, *, published_us: int, cleaned_us: int, already: bool) -> None:
    """Say in one line what an epoch did and how long it took; INFO, so that it costs nothing where nobody listens."""
    if not logger.isEnabledFor(logging.INFO):
        return
    payload, metrics = sink_record(record), sink_record(record).metrics
    files = [file for operator in record.metadata.operators for file in pre_commits(operator)]
    rows, size = sum(file.rows for file in files), sum(file.length_bytes for file in files)
    kind = "finish" if payload.kind == sink.RECORD_KIND_FINISH else f"batch {payload.batch_id}"
    said = {
        "rows": payload.input_rows,
        "files": len(files),
        "file_rows": rows,
        "file_bytes": size,
        "files_in_flight": metrics.files_in_flight,
        "rows_in_flight": metrics.rows_in_flight,
        "read_ms": metrics.read_us // 1000,
        "encode_ms": metrics.encode_us // 1000,
        "upload_ms": metrics.upload_us // 1000,
        "state_ms": metrics.state_us // 1000,
        "publish_ms": published_us // 1000,
        "clean_up_ms": cleaned_us // 1000,
    }
    logger.info(
        "job %s epoch %d (%s): %d rows in; %s %d rows in %d files, %.1f MB; in flight %d rows in %d files; "
        "read %d ms, encode %d ms, upload %d ms, state %d ms, publish %d ms, clean-up %d ms",
        record.metadata.job_id,
        record.epoch,
        kind,
        payload.input_rows,
        "published before:" if already and files else "published",
        rows,
        len(files),
        size / (1 << 20),
        metrics.rows_in_flight,
        metrics.files_in_flight,
        *(value for name, value in said.items() if name.endswith("_ms")),
        extra={_FIELDS: {"job": record.metadata.job_id, "epoch": record.epoch, "batch_id": payload.batch_id, **said}},
    )
