"""The names of all objects under the state location, and the way back from a name to what it says.

``{job}/job.metadata`` and, under ``{job}/checkpoints/{epoch}/``, ``checkpoint.metadata`` (the record),
``operator-{operator}-{subtask}.metadata``, ``table-{table}-{subtask}-{attempt}.parquet``,
``segment-{subtask}-{attempt}-{n}`` and ``publish.metadata``. Epochs are zero-padded, so key order is epoch order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from icefloe.errors import StateError

EPOCH_DIGITS = 10
MAX_EPOCH = 10**EPOCH_DIGITS - 1

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,127}"
_NUMBER = r"0|[1-9][0-9]{0,8}"
_ATTEMPT = r"[0-9a-f]{32}"

_JOB_METADATA = re.compile(rf"(?P<job>{_NAME})/job\.metadata")
_IN_EPOCH = re.compile(rf"(?P<job>{_NAME})/checkpoints/(?P<epoch>[0-9]{{{EPOCH_DIGITS}}})/(?P<rest>[^/]+)")


class ObjectKind(StrEnum):
    """What an object of the state layer is."""

    JOB_METADATA = "job metadata"
    RECORD = "record"
    OPERATOR_METADATA = "operator metadata"
    TABLE_FILE = "table file"
    SEGMENT = "segment"
    PUBLISH_LOG = "publish log"


@dataclass(frozen=True, slots=True)
class StateObject:
    """What a key says. Fields that a kind does not have are None."""

    kind: ObjectKind
    job: str
    epoch: int | None = None
    # The table's name (table files) or the operator's id (operator metadata).
    table: str | None = None
    operator: str | None = None
    subtask: int | None = None
    attempt: str | None = None
    n: int | None = None


_RECORD_FILE = "checkpoint.metadata"
_PUBLISH_LOG_FILE = "publish.metadata"
# The attempt has a fixed form and the numbers hold no dash, so the last parts are found whatever the name before them.
_FILES_OF_EPOCH = {
    ObjectKind.RECORD: re.compile(re.escape(_RECORD_FILE)),
    ObjectKind.PUBLISH_LOG: re.compile(re.escape(_PUBLISH_LOG_FILE)),
    ObjectKind.OPERATOR_METADATA: re.compile(rf"operator-(?P<operator>{_NAME})-(?P<subtask>{_NUMBER})\.metadata"),
    ObjectKind.TABLE_FILE: re.compile(
        rf"table-(?P<table>{_NAME})-(?P<subtask>{_NUMBER})-(?P<attempt>{_ATTEMPT})(?:-(?P<n>{_NUMBER}))?\.parquet"
    ),
    ObjectKind.SEGMENT: re.compile(rf"segment-(?P<subtask>{_NUMBER})-(?P<attempt>{_ATTEMPT})-(?P<n>{_NUMBER})"),
}


def job_metadata_name(job: str) -> str:
    """Return the name of the object that is written once, before the job's first record."""
    return f"{_checked('job', _NAME, job)}/job.metadata"


def checkpoints_prefix(job: str) -> str:
    """Return the prefix of everything that carries an epoch of the job."""
    return f"{_checked('job', _NAME, job)}/checkpoints/"


def epoch_prefix(job: str, epoch: int) -> str:
    """Return the prefix of everything tagged with ``epoch``. Raises ``StateError`` for an epoch that has no name."""
    if not 0 <= epoch <= MAX_EPOCH:
        raise StateError("ICEFLOE_STATE_NAME_INVALID", f"epoch {epoch} is not between 0 and {MAX_EPOCH}")
    return f"{checkpoints_prefix(job)}{epoch:0{EPOCH_DIGITS}d}/"


def record_name(job: str, epoch: int) -> str:
    """Return the name of the record of ``epoch``."""
    return epoch_prefix(job, epoch) + _RECORD_FILE


def publish_log_name(job: str, epoch: int) -> str:
    """Return the name of the log of publishing ``epoch``, on which nothing depends."""
    return epoch_prefix(job, epoch) + _PUBLISH_LOG_FILE


def operator_metadata_name(job: str, epoch: int, operator_id: str, subtask: int) -> str:
    """Return the name of the metadata of one subtask, copied from the record of ``epoch``."""
    operator = _checked("operator", _NAME, operator_id)
    return f"{epoch_prefix(job, epoch)}operator-{operator}-{_checked_number('subtask', subtask)}.metadata"


def table_checkpoint_path(job: str, epoch: int, table: str, subtask: int, attempt: str, *, n: int | None = None) -> str:
    """Return the name of a state table's file of one attempt; ``n`` tells several of them apart (compaction)."""
    name = _checked("table", _NAME, table)
    number = "" if n is None else f"-{_checked_number('n', n)}"
    own = f"{_checked_number('subtask', subtask)}-{_checked('attempt', _ATTEMPT, attempt)}{number}"
    return f"{epoch_prefix(job, epoch)}table-{name}-{own}.parquet"


def segment_name(job: str, epoch: int, subtask: int, attempt: str, n: int) -> str:
    """Return the name of the ``n``-th segment that one attempt wrote."""
    own = f"{_checked_number('subtask', subtask)}-{_checked('attempt', _ATTEMPT, attempt)}-{_checked_number('n', n)}"
    return f"{epoch_prefix(job, epoch)}segment-{own}"


def parse(key: str) -> StateObject | None:
    """Return what ``key`` says, or None when no function of this module makes such a key.

    The exact inverse: for every key that is not None, building the name from the result gives the key again.
    """
    match = _JOB_METADATA.fullmatch(key)
    if match:
        return StateObject(ObjectKind.JOB_METADATA, match["job"])
    in_epoch = _IN_EPOCH.fullmatch(key)
    if not in_epoch:
        return None
    for kind, pattern in _FILES_OF_EPOCH.items():
        match = pattern.fullmatch(in_epoch["rest"])
        if match:
            fields = match.groupdict()
            return StateObject(
                kind,
                in_epoch["job"],
                epoch=int(in_epoch["epoch"]),
                table=fields.get("table"),
                operator=fields.get("operator"),
                subtask=_number(fields.get("subtask")),
                attempt=fields.get("attempt"),
                n=_number(fields.get("n")),
            )
    return None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _checked(what: str, pattern: str, value: str) -> str:
    if not re.fullmatch(pattern, value):
        raise StateError(
            "ICEFLOE_STATE_NAME_INVALID", f"{value!r} cannot be the {what} in an object's name: it must match {pattern}"
        )
    return value


def _checked_number(what: str, value: int) -> str:
    return _checked(what, _NUMBER, str(value))
