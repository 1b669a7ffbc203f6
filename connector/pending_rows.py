"""Rows of one file that are in no row group yet: some in memory, some durable in state and read only when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from icefloe.errors import CorruptStateError

LoadPending = Callable[[], Iterable[pa.RecordBatch]]

# So many small batches in a row become one: with hundreds of partitions there would be tens of thousands of them, and
# each costs a few kilobytes beside its rows.
_MERGED_BATCHES = 16
_SMALL_BYTES = 256 << 10


class PendingRows:
    """Stored rows come first, rows in memory after them; both keep their order.

    ``load`` returns every row that state held for the file when it was resumed, followed by all that ``spill`` gave out
    since, in that order. What was consumed already is skipped here, so the caller need not keep track.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        owner: str,
        stored_rows: int = 0,
        stored_arrow_bytes: int = 0,
        load: LoadPending | None = None,
    ) -> None:
        self._schema = schema
        self._owner = owner
        self._load = load
        self.stored_rows = stored_rows
        self.stored_arrow_bytes = stored_arrow_bytes
        self.consumed_rows = 0
        self.batches: list[pa.RecordBatch] = []
        self._sizes: list[int] = []
        # How many of the batches at the end are small.
        self._small_batches = 0
        self.memory_rows = 0
        self.memory_bytes = 0
        # How many of the rows in memory, from the first on, ``new_rows`` has given out.
        self._shown_rows = 0

    @property
    def rows(self) -> int:
        """Rows in state and in memory."""
        return self.stored_rows + self.memory_rows

    @property
    def arrow_bytes(self) -> int:
        """Arrow bytes in state and in memory."""
        return self.stored_arrow_bytes + self.memory_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep a batch. Nothing is copied, but for small batches once there are many of them."""
        if batch.num_rows == 0:
            return
        # nbytes counts what a slice refers to, not the buffers it shares with the batch it was cut from.
        size = batch.nbytes
        self.batches.append(batch)
        self._sizes.append(size)
        self.memory_rows += batch.num_rows
        self.memory_bytes += size
        self._small_batches = self._small_batches + 1 if size < _SMALL_BYTES else 0
        if self._small_batches == _MERGED_BATCHES:
            self._merge_small()

    def _merge_small(self) -> None:
        self.batches[-_MERGED_BATCHES:] = [pa.concat_batches(self.batches[-_MERGED_BATCHES:])]
        # What the batches were counted with: sizes must not depend on when they were merged.
        self._sizes[-_MERGED_BATCHES:] = [sum(self._sizes[-_MERGED_BATCHES:])]
        self._small_batches = 0

    def peek(self) -> pa.Table:
        """Return all rows; nothing is taken. Raises ``CorruptStateError`` when state gives other rows than counted."""
        return pa.Table.from_batches([*self._stored(), *self.batches], self._schema)

    def take(self, arrow_budget_bytes: int | None = None) -> pa.Table:
        """Take all stored rows, and rows from memory until the budget is reached (all of them without one)."""
        stored = self._stored()
        taken = self._cut(None if arrow_budget_bytes is None else arrow_budget_bytes - self.stored_arrow_bytes)
        self.consumed_rows += self.stored_rows
        self.stored_rows = self.stored_arrow_bytes = 0
        return pa.Table.from_batches([*stored, *taken], self._schema)

    def new_rows(self) -> list[pa.RecordBatch]:
        """Return the rows in memory that no earlier call returned; they stay here."""
        skip, found = self._shown_rows, []
        for batch in self.batches:
            if skip < batch.num_rows:
                found.append(batch.slice(skip))
            skip = max(0, skip - batch.num_rows)
        self._shown_rows = self.memory_rows
        return found

    def spill(self) -> list[pa.RecordBatch]:
        """Give out the rows in memory, which the caller makes durable; from now on they count as stored."""
        batches = self._cut(None)
        self.stored_rows += sum(batch.num_rows for batch in batches)
        self.stored_arrow_bytes += sum(batch.nbytes for batch in batches)
        return batches

    def _cut(self, budget_bytes: int | None) -> list[pa.RecordBatch]:
        before = self.memory_rows
        taken = self._cut_batches(budget_bytes)
        self._shown_rows = max(0, self._shown_rows - (before - self.memory_rows))
        return taken

    def _cut_batches(self, budget_bytes: int | None) -> list[pa.RecordBatch]:
        if budget_bytes is None:
            taken, self.batches, self._sizes = self.batches, [], []
            self.memory_rows = self.memory_bytes = self._small_batches = 0
            return taken
        taken, used, whole = [], 0, 0
        for batch, size in zip(self.batches, self._sizes, strict=True):
            if used + size > budget_bytes:
                break
            taken.append(batch)
            used += size
            whole += 1
        rest = self.batches[whole:]
        if rest and used < budget_bytes:
            rows = min(rest[0].num_rows, max(1, rest[0].num_rows * (budget_bytes - used) // max(1, self._sizes[whole])))
            taken.append(rest[0].slice(0, rows))
            rest[0] = rest[0].slice(rows)
        self.batches, self._sizes = [], []
        self.memory_rows = self.memory_bytes = self._small_batches = 0
        for batch in rest:
            self.add(batch)
        return taken

    def _stored(self) -> list[pa.RecordBatch]:
        if self.stored_rows == 0:
            return []
        skip, kept = self.consumed_rows, []
        for batch in self._load() if self._load is not None else ():
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            kept.append(batch.slice(skip) if skip else batch)
            skip = 0
        found = sum(batch.num_rows for batch in kept)
        if found != self.stored_rows:
            raise CorruptStateError(
                "ICEFLOE_PENDING_ROWS",
                f"in-flight file {self._owner} has {self.stored_rows} pending rows by its entry, "
                f"and state holds {found} of them: the state is damaged or not the one the entry was written with",
            )
        return kept
