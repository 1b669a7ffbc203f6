"""A global table as its owner sees it: typed keys and values in memory, durable with the next checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from icefloe.errors import CorruptStateError
from icefloe.proto import state_pb2 as pb
from icefloe.state.encoding import Codec, KeyedCodecs
from icefloe.state.global_keyed_checkpointer import Metadata, commit_data_refused
from icefloe.state.global_keyed_table import GlobalKeyedTable
from icefloe.state.table import CommitData, KeyedData, TableData
from icefloe.state.write_gate import WriteGate

K = TypeVar("K")
V = TypeVar("V")


class GlobalKeyedView(Generic[K, V]):
    """Holds each value once, encoded, so a value that was read and then changed by its reader changes nothing here.

    Writes are buffered until the checkpoint. For one thread. Writes after ``then_stop`` raise ``StateError``.
    """

    def __init__(self, table: GlobalKeyedTable, codecs: KeyedCodecs, gate: WriteGate) -> None:
        self._table = table
        self._key: Codec[K] = codecs.key
        self._value: Codec[V] = codecs.value
        self._gate = gate
        # The keys written after the first, largest file: what a merge that leaves that file alone must write.
        self._since_first: set[bytes] = set()
        self._data = table.load_with_version(codecs)
        self._since_first_known = len(table.files) <= 1
        self._changes: dict[bytes, bytes | None] = {}
        self._fresh: set[bytes] = set()
        self._commit_data: CommitData | None = None

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: K) -> bool:
        return self._key.encode(key) in self._data

    def get(self, key: K) -> V | None:
        """Return the value, or None. Raises ``CorruptStateError`` when its bytes are not of the declared type."""
        data = self._data.get(self._key.encode(key))
        return None if data is None else cast(V, self._decoded(self._value, data))

    def insert(self, key: K, value: V) -> None:
        """Set the value. Setting what is there already writes nothing."""
        self._gate.check(self._table.table_name)
        encoded, data = self._key.encode(key), self._value.encode(value)
        known = self._data.get(encoded)
        # Where others may write the same key in this epoch, even a write that changes nothing here must be on record.
        if not self._table.shares_keys:
            if known == data:
                return
            if known is None and encoded not in self._changes:
                self._fresh.add(encoded)
        self._data[encoded] = data
        self._changes[encoded] = data

    def remove(self, key: K) -> V | None:
        """Remove the key and return the value it had, or None."""
        self._gate.check(self._table.table_name)
        encoded = self._key.encode(key)
        data = self._data.pop(encoded, None)
        if data is None:
            return None
        if encoded in self._fresh:
            # No file has the key: it needs no tombstone.
            self._fresh.discard(encoded)
            del self._changes[encoded]
        else:
            self._changes[encoded] = None
        return cast(V, self._decoded(self._value, data))

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield all keys with their values. The table may be changed while this runs."""
        for encoded in list(self._data):
            data = self._data.get(encoded)
            if data is not None:
                yield self._decoded(self._key, encoded), self._decoded(self._value, data)

    def keys(self) -> Iterator[K]:
        """Yield all keys; values are not decoded."""
        for encoded in list(self._data):
            yield self._decoded(self._key, encoded)

    def set_commit_data(self, data: bytes, version: int = 0) -> None:
        """Give what becomes final with this epoch's record. Once per epoch, for tables with two-phase commit.

        Raises ``StateError`` for a second call before the checkpoint, or a table declared without.
        """
        self._gate.check(self._table.table_name)
        if not self._table.config.uses_two_phase_commit or self._commit_data is not None:
            raise commit_data_refused(self._table.table_name, again=self._commit_data is not None)
        self._commit_data = CommitData(data, version)

    @property
    def has_unsaved(self) -> bool:
        """Whether the next checkpoint would write anything."""
        return bool(self._changes) or self._commit_data is not None

    def unsaved(self, current: Metadata | None) -> Iterator[TableData]:
        """Yield what the checkpointer must write: the changes, or what they and carried files amount to."""
        if self._changes:
            yield self._merged(list(current.files) if current else []) or KeyedData(self._changes)
        if self._commit_data is not None:
            yield self._commit_data

    def saved(self, metadata: Metadata | None) -> None:
        """The checkpoint that took ``unsaved`` is complete."""
        files = list(metadata.files) if metadata else []
        if len(files) <= 1:
            self._since_first = set()
            self._since_first_known = True
        else:
            self._since_first.update(self._changes)
        self._changes = {}
        self._fresh = set()
        self._commit_data = None

    def _merged(self, carried: list[pb.GlobalKeyedFile]) -> KeyedData | None:
        table = self._table
        if table.shares_keys:
            # Memory holds other subtasks' keys too; the checkpointer merges this subtask's own files.
            return None
        inputs = table.merge_inputs(carried, len(self._changes))
        if not inputs:
            return None
        names = tuple(file.file for file in inputs)
        if len(inputs) == len(carried) or not self._since_first_known:
            return KeyedData(self._data, replaces=tuple(file.file for file in carried))
        keys = self._since_first.union(self._changes)
        return KeyedData({key: self._data.get(key) for key in keys}, replaces=names)

    def _decoded(self, codec: Codec[K] | Codec[V], data: bytes) -> Any:
        try:
            return codec.decode(data)
        except CorruptStateError as error:
            raise CorruptStateError(
                error.code, f"table {self._table.table_name!r} of job {self._table.task_info.job_id}: {error.message}"
            ) from error
