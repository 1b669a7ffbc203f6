"""A key-time table as its owner sees it: the latest value of each typed key, until the watermark expires it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from icefloe.errors import CorruptStateError, StateError
from icefloe.state.encoding import Codec, KeyedCodecs, MigratingCodec
from icefloe.state.expiring_time_key_table import ExpiringTimeKeyTable, Metadata
from icefloe.state.key_time_rows import batch_to_tuples, key_hash, key_time_schema
from icefloe.state.table import BlindDataTuple, DataTuple, TableData, TupleData
from icefloe.state.write_gate import WriteGate

K = TypeVar("K")
V = TypeVar("V")


class KeyTimeView(Generic[K, V]):
    """Holds the latest write of each key, once, encoded. For one thread.

    Raises ``CorruptStateError`` on opening when a file is gone or garbled, or is not a key-time table's.
    """

    def __init__(self, table: ExpiringTimeKeyTable, codecs: KeyedCodecs, gate: WriteGate) -> None:
        self._table = table
        self._key: Codec[K] = codecs.key
        self._value: Codec[V] = codecs.value
        self._gate = gate
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        self._changed: set[bytes] = set()
        self.epoch: int | None = None
        self._refuse_versions(codecs)
        self._load()

    def insert(self, timestamp: int, key: K, value: V) -> None:
        """Set the value of the key as of ``timestamp``; ignored when a later one is known."""
        self.insert_tuple(DataTuple(timestamp, key, value))

    def remove(self, timestamp: int, key: K) -> None:
        """Remove the key as of ``timestamp``; ignored when a later value is known."""
        self.insert_tuple(DataTuple(timestamp, key, None))

    def insert_tuple(self, data: DataTuple[K, V]) -> None:
        """Apply one change. Raises ``StateError`` after ``then_stop``."""
        self._gate.check(self._table.table_name)
        encoded = self._key.encode(data.key)
        known = self._latest.get(encoded)
        if data.timestamp < self._table.floor or (known is not None and data.timestamp < known[0]):
            return
        self._latest[encoded] = data.timestamp, None if data.value is None else self._value.encode(data.value)
        self._changed.add(encoded)

    def get(self, key: K) -> V | None:
        """Return the latest value of the key, or None."""
        found = self.get_tuple(key)
        return None if found is None else found.value

    def get_tuple(self, key: K) -> DataTuple[K, V] | None:
        """Return the latest value of the key with its time, or None."""
        timestamp, data = self._latest.get(self._key.encode(key), (0, None))
        return None if data is None else DataTuple(timestamp, key, self._decoded(self._value, data))

    def items(self) -> Iterator[DataTuple[K, V]]:
        """Yield the latest value of every key."""
        for encoded, (timestamp, data) in list(self._latest.items()):
            if data is not None:
                yield DataTuple(timestamp, self._decoded(self._key, encoded), self._decoded(self._value, data))

    @property
    def has_unsaved(self) -> bool:
        """Whether the next checkpoint would write anything."""
        return bool(self._changed)

    def unsaved(self, current: Metadata | None) -> Iterator[TableData]:
        """Yield what the checkpointer must write: the last change of each key that changed."""
        if self._changed:
            latest = self._latest
            yield TupleData(
                [BlindDataTuple(key_hash(key), latest[key][0], key, latest[key][1]) for key in self._changed]
            )

    def saved(self, metadata: Metadata | None) -> None:
        """The checkpoint that took ``unsaved`` is complete; what its watermark expired leaves memory."""
        self._changed = set()
        floor = self._table.floor
        for key in [key for key, (timestamp, _) in self._latest.items() if timestamp < floor]:
            del self._latest[key]

    def _load(self) -> None:
        table = self._table
        order: dict[bytes, tuple[int, int]] = {}
        for file in table.files:
            for batch in table.read(file, table.cutoffs):
                if batch.schema.names != key_time_schema(table.config).names:
                    raise CorruptStateError(
                        "ICEFLOE_STATE_FILE_FOREIGN",
                        f"{file.file} has the columns {batch.schema.names}: it is not a key-time table's file",
                    )
                for row, epoch in batch_to_tuples(batch):
                    if order.get(row.key, (row.timestamp, epoch)) <= (row.timestamp, epoch):
                        order[row.key] = row.timestamp, epoch
                        self._latest[row.key] = row.timestamp, row.value

    def _refuse_versions(self, codecs: KeyedCodecs) -> None:
        versioned = [c for c in (codecs.key, codecs.value) if isinstance(c, MigratingCodec) and c.version]
        if versioned:
            raise StateError(
                "ICEFLOE_STATE_VERSION_CONFIG",
                f"table {self._table.table_name!r}: key-time tables hold types of version 0 only",
            )

    def _decoded(self, codec: Codec[K] | Codec[V], data: bytes) -> Any:
        try:
            return codec.decode(data)
        except CorruptStateError as error:
            raise CorruptStateError(
                error.code, f"table {self._table.table_name!r} of job {self._table.task_info.job_id}: {error.message}"
            ) from error
