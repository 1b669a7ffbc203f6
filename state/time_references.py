"""References to time files: which keys and times of a file still belong to a table. Files never change, these do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

from icefloe.errors import CorruptStateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.task_info import TaskInfo

MIN_TIME: Final = -(2**63)
# As a cutoff it removes the whole key.
MAX_TIME: Final = 2**63 - 1
MAX_KEY: Final = 2**64 - 1
ALL_KEYS: Final = (0, MAX_KEY)
NO_CUTOFFS: Final[Mapping[int, int]] = {}

KeyBounds = tuple[int, int]


def key_bounds(task_info: TaskInfo) -> KeyBounds:
    """Return the first and the last routing key of a subtask; all keys where the owner deals files by itself."""
    n, index = task_info.parallelism, task_info.subtask_index
    if n == 0:
        return ALL_KEYS
    return index * 2**64 // n, (index + 1) * 2**64 // n - 1


def narrowed(
    file: pb.ParquetTimeFile,
    *,
    keys: KeyBounds = ALL_KEYS,
    min_time: int = MIN_TIME,
    cutoffs: Mapping[int, int] = NO_CUTOFFS,
) -> pb.ParquetTimeFile | None:
    """Return the reference cut down to what is within the bounds, or None when nothing is left.

    Cutoffs are applied where the reference lists its keys; elsewhere only reading the rows tells.
    """
    low, high = max(keys[0], file.min_routing_key), min(keys[1], file.max_routing_key)
    floor = max(min_time, file.min_time)
    if low > high or floor > file.max_time:
        return None
    if not file.keys:
        return _with_bounds(file, low, high, floor, file.max_time)
    live = [
        entry if floors == entry.min_time else _raised(entry, floors)
        for entry in _entries(file, low, high)
        if (floors := max(floor, entry.min_time, cutoffs.get(entry.key, MIN_TIME))) <= entry.max_time
        and cutoffs.get(entry.key) != MAX_TIME
    ]
    if not live:
        return None
    if len(live) == len(file.keys) and all(new is old for new, old in zip(live, file.keys, strict=True)):
        return file
    times = min(entry.min_time for entry in live), max(entry.max_time for entry in live)
    cut = _with_bounds(file, live[0].key, live[-1].key, *times, list_keys=False)
    cut.keys.extend(live)
    return cut


def live_rows(file: pb.ParquetTimeFile) -> int:
    """Return how many rows of the file the reference covers: an estimate, exact until something was cut off."""
    return sum(entry.rows for entry in file.keys) if file.keys else file.rows


def join_adjacent(table: str, files: Iterable[pb.ParquetTimeFile]) -> list[pb.ParquetTimeFile]:
    """Put together references that split one file by key range, as subtasks of another parallelism left them.

    Raises ``CorruptStateError`` for references that overlap: their rows would be there twice.
    """
    joined: list[pb.ParquetTimeFile] = []
    for file in sorted(files, key=lambda file: (file.epoch, file.file, file.min_routing_key)):
        last = joined[-1] if joined else None
        if last is None or last.file != file.file:
            joined.append(file)
            continue
        if last.max_routing_key >= file.min_routing_key:
            raise CorruptStateError(
                "ICEFLOE_STATE_FILE_TWICE",
                f"table {table!r}: two references to {file.file} both cover the key {file.min_routing_key}",
            )
        if last.keys or (last.max_routing_key + 1 == file.min_routing_key and last.min_time == file.min_time):
            joined[-1] = _joined(last, file)
        else:
            joined.append(file)
    return joined


def refuse_repeated(table: str, files: Iterable[pb.ParquetTimeFile]) -> None:
    """Raise ``CorruptStateError`` when a file is referenced twice."""
    seen: set[str] = set()
    for file in files:
        if file.file in seen:
            raise CorruptStateError(
                "ICEFLOE_STATE_FILE_TWICE", f"table {table!r}: the metadata to restore names {file.file} more than once"
            )
        seen.add(file.file)


def _entries(file: pb.ParquetTimeFile, low: int, high: int) -> Iterable[pb.KeyRange]:
    if (low, high) == (file.min_routing_key, file.max_routing_key):
        return file.keys
    start = bisect_left(file.keys, low, key=lambda entry: entry.key)
    end = bisect_left(file.keys, high + 1, lo=start, key=lambda entry: entry.key)
    return file.keys[start:end]


def _raised(entry: pb.KeyRange, min_time: int) -> pb.KeyRange:
    span = entry.max_time - entry.min_time + 1
    rows = max(entry.rows * (entry.max_time - min_time + 1) // span, 1)
    return pb.KeyRange(key=entry.key, min_time=min_time, max_time=entry.max_time, rows=rows)


def _with_bounds(
    file: pb.ParquetTimeFile, low: int, high: int, min_time: int, max_time: int, *, list_keys: bool = True
) -> pb.ParquetTimeFile:
    bounds = (file.min_routing_key, file.max_routing_key, file.min_time, file.max_time)
    if list_keys and bounds == (low, high, min_time, max_time):
        return file
    return pb.ParquetTimeFile(
        file=file.file,
        epoch=file.epoch,
        min_routing_key=low,
        max_routing_key=high,
        min_time=min_time,
        max_time=max_time,
        generation=file.generation,
        bytes=file.bytes,
        rows=file.rows,
        crc32=file.crc32,
    )


def _joined(left: pb.ParquetTimeFile, right: pb.ParquetTimeFile) -> pb.ParquetTimeFile:
    times = min(left.min_time, right.min_time), max(left.max_time, right.max_time)
    whole = _with_bounds(left, left.min_routing_key, right.max_routing_key, *times, list_keys=False)
    whole.keys.extend([*left.keys, *right.keys])
    return whole
