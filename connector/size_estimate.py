"""How large rows will be once encoded: what decides when a row group is full and when a file has its size."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from icefloe.connector.parquet_format import ParquetFormat, writer_digest
from icefloe.connector.row_group_encoder import encode_row_group

_SAMPLE_MAX_BYTES = 16 * 1024 * 1024
_SAMPLE_GROWTH = 4
# Used only while no row of the schema is at hand to be tried.
_BLIND_RATIO = 0.3


class EncodedRatio:
    """Encoded bytes per Arrow byte for one schema and one format. Safe from any thread.

    Starts from samples that grow with the rows at hand, since a small sample compresses worse than a row group, and
    follows the row groups that are really encoded from then on.
    """

    def __init__(self, format: ParquetFormat, schema: pa.Schema) -> None:
        self._format = format
        self._schema = schema
        self._lock = threading.Lock()
        self._ratio: float | None = None
        self._evidence_bytes = 0

    def observe(self, arrow_bytes: int, encoded_bytes: int) -> None:
        """Learn from a row group that was encoded."""
        if arrow_bytes <= 0:
            return
        with self._lock:
            seen = encoded_bytes / arrow_bytes
            known = self._ratio is not None and self._evidence_bytes >= arrow_bytes
            self._ratio = (self._ratio + seen) / 2 if known and self._ratio is not None else seen
            self._evidence_bytes = max(self._evidence_bytes, arrow_bytes)

    def estimate(self, arrow_bytes: int, batches: Sequence[pa.RecordBatch] = ()) -> int:
        """Return the encoded size of ``arrow_bytes``; where too little is known, ``batches`` are encoded on trial."""
        if batches and self._wants_sample(arrow_bytes, batches):
            self._sample(batches)
        ratio = self._ratio
        return int(arrow_bytes * (_BLIND_RATIO if ratio is None else ratio))

    def is_guess(self, arrow_bytes: int) -> bool:
        """Whether less than half of so many Arrow bytes was ever encoded at once: small pieces compress worse."""
        with self._lock:
            return self._evidence_bytes * 2 < arrow_bytes

    def evidence(self) -> tuple[int, int]:
        """Return the most Arrow bytes that the ratio rests on, and what they become: what another process can learn."""
        with self._lock:
            return self._evidence_bytes, int(self._evidence_bytes * (self._ratio or 0))

    def learn(self, arrow_bytes: int, encoded_bytes: int) -> None:
        """Take another process' evidence, where it rests on more than this one has seen."""
        with self._lock:
            if arrow_bytes > self._evidence_bytes:
                self._ratio, self._evidence_bytes = encoded_bytes / arrow_bytes, arrow_bytes

    def _wants_sample(self, arrow_bytes: int, batches: Sequence[pa.RecordBatch]) -> bool:
        with self._lock:
            enough = self._evidence_bytes * _SAMPLE_GROWTH
            if self._ratio is None:
                return arrow_bytes > 0
            if self._evidence_bytes >= _SAMPLE_MAX_BYTES or arrow_bytes < enough:
                return False
        # Rows that wait in state are counted and not at hand: a sample must be able to teach something.
        return int(sum(batch.nbytes for batch in batches)) >= enough

    def _sample(self, batches: Sequence[pa.RecordBatch]) -> None:
        sample, size = [], 0
        for batch in batches:
            room = _SAMPLE_MAX_BYTES - size
            if room <= 0:
                break
            if batch.nbytes > room:
                batch = batch.slice(0, max(1, batch.num_rows * room // batch.nbytes))
            sample.append(batch)
            size += batch.nbytes
        table = pa.Table.from_batches(sample, self._schema)
        encoded = encode_row_group(table, position_bytes=0, schema=self._schema, format=self._format)
        with self._lock:
            self._ratio = len(encoded.data) / max(1, encoded.arrow_bytes)
            self._evidence_bytes = max(self._evidence_bytes, encoded.arrow_bytes)


_shared: dict[str, EncodedRatio] = {}
_shared_lock = threading.Lock()
_SHARED_LIMIT = 64


def shared_ratio(format: ParquetFormat, schema: pa.Schema) -> EncodedRatio:
    """Return this process' ratio for a schema and format, so that a later task need not sample again.

    A cache only: with an empty one the first row group of a file costs one trial.
    """
    key = writer_digest(format, schema)
    with _shared_lock:
        if key not in _shared and len(_shared) >= _SHARED_LIMIT:
            _shared.clear()
        return _shared.setdefault(key, EncodedRatio(format, schema))
