"""How much memory does one task take with hundreds of open partitions? One task in a process of its own.

    python benchmarks/memory.py [--save folder]

Limit: with 500 open partitions and ``memoryBudget=256MB`` the worker peaks at the budget plus 350 MB at most.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pyarrow as pa

from support.harness import Harness

PARTITIONS = 500
BATCHES, ROWS = 400, 10_000


def batches() -> Iterator[pa.RecordBatch]:
    """Yield rows that go round all partitions, about 400 bytes each and hard to compress: 1.6 GB in all."""
    import random

    source = random.Random(7)
    text = source.randbytes(1 << 21).hex()
    for batch in range(BATCHES):
        ids = range(batch * ROWS, (batch + 1) * ROWS)
        regions = [f"{i % PARTITIONS:04d}" for i in ids]
        notes = [text[at : at + 384] for at in (source.randrange(len(text) - 384) for _ in ids)]
        yield pa.record_batch([pa.array(ids), pa.array(regions), pa.array(notes)], names=["id", "region", "note"])


def peak(visibility: str, queue: multiprocessing.Queue[tuple[int, int]]) -> None:
    """Run one task and send the peak before and after, in bytes."""
    with tempfile.TemporaryDirectory(prefix="icefloe-bench-") as temporary:
        folder = Path(temporary)
        options = {
            "path": str(folder / "out"),
            "partitionBy": "region",
            "visibility": visibility,
            "memoryBudget": "256MB",
            "maxOpenFiles": str(PARTITIONS),
        }
        schema = pa.schema([("id", pa.int64()), ("region", pa.string()), ("note", pa.string())])
        query = Harness(folder / "checkpoint", options, schema)
        query.begin(0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        reports = query.tasks(0, [batches()])  # type: ignore[list-item]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        assert reports[0].input_rows == BATCHES * ROWS
        queue.put((before, after))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = {}
    for visibility in ("batch", "roll"):
        queue = context.Queue()
        process = context.Process(target=peak, args=(visibility, queue))
        process.start()
        before, after = queue.get()
        process.join()
        results[visibility] = {"before_mb": before >> 20, "peak_mb": after >> 20, "limit_mb": 256 + 350}
        print(visibility, results[visibility])
    if given.save is not None:
        given.save.mkdir(parents=True, exist_ok=True)
        (given.save / "memory.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
