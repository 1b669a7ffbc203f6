"""Names of data files: built and parsed here and nowhere else.

``{folders}/{prefix}{job8}-{epoch}-{subtask}-{attempt}-{n}.parquet``, where ``epoch`` is the one the file was finished
for. Every name carries the attempt that made it, so no two attempts can ever write the same one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from icefloe.state.task_info import TaskInfo

HIDDEN_FOLDER = "_icefloe"
SUFFIX = ".parquet"
IN_PROGRESS_SUFFIX = ".inprogress"

_FILE_NAME = re.compile(
    r"(?P<prefix>.*)(?P<job8>[0-9A-Za-z]{8})-(?P<epoch>\d{1,19})-(?P<subtask>\d{1,9})-(?P<attempt>[0-9a-f]{32})-(?P<number>\d{1,9})\.parquet",
    re.DOTALL,
)
_IN_PROGRESS = re.compile(rf"{HIDDEN_FOLDER}/(?P<job>[^/]+)/(?P<name>.+){re.escape(IN_PROGRESS_SUFFIX)}", re.DOTALL)


def job8(job_id: str) -> str:
    """Return the eight characters that stand for a job in file names."""
    return re.sub(r"[^0-9A-Za-z]", "", job_id)[:8].ljust(8, "0")


@dataclass(frozen=True, slots=True)
class DataName:
    """A parsed data file name, relative to the data location. ``folder`` is empty or ends without a slash."""

    folder: str
    prefix: str
    job8: str
    epoch: int
    subtask: int
    attempt_id: str
    number: int

    def __str__(self) -> str:
        name = f"{self.prefix}{self.job8}-{self.epoch}-{self.subtask}-{self.attempt_id}-{self.number}{SUFFIX}"
        return f"{self.folder}/{name}" if self.folder else name


def data_name(info: TaskInfo, epoch: int, number: int, *, folder: str = "", prefix: str = "") -> str:
    """Return the name of the ``number``-th data file that this attempt makes for ``epoch``."""
    return str(DataName(folder, prefix, job8(info.job_id), epoch, info.subtask_index, info.attempt_id, number))


def parse(name: str) -> DataName | None:
    """Parse a relative data file name; None for a name that Icefloe did not make."""
    folder, _, last = name.rpartition("/")
    found = _FILE_NAME.fullmatch(last)
    if found is None:
        return None
    return DataName(
        folder=folder,
        prefix=found["prefix"],
        job8=found["job8"],
        epoch=int(found["epoch"]),
        subtask=int(found["subtask"]),
        attempt_id=found["attempt"],
        number=int(found["number"]),
    )


def in_progress_name(job_id: str, name: str) -> str:
    """Return the name under which a local file is written before it is published; it never ends in ``.parquet``."""
    return f"{HIDDEN_FOLDER}/{job_id}/{name}{IN_PROGRESS_SUFFIX}"


def parse_in_progress(name: str) -> tuple[str, DataName] | None:
    """Parse an in-progress name into job id and data name; None for anything else."""
    found = _IN_PROGRESS.fullmatch(name)
    data = parse(found["name"]) if found else None
    return (found["job"], data) if found and data else None


def file_id(info: TaskInfo, epoch: int, number: int) -> str:
    """Return the id of an in-flight file that this attempt begins: unique in the job's history."""
    return f"{epoch}-{info.subtask_index}-{info.attempt_id}-{number}"
