"""Does an epoch cost the same after a thousand of them? Drives tasks and commits as Spark does, without a JVM.

    python benchmarks/growth.py [--epochs 1000] [--save folder]

Limit: epoch 1,000 takes at most 1.3 times epoch 50, and the state does not grow. Each figure is the median of the 41
epochs around it. The time of the CPU is there too: it tells growth from the neighbours of a shared machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.harness import Harness, event_rows

WINDOW = 20


def grow(options: Mapping[str, str], epochs: int) -> dict[str, float]:
    """Run so many epochs of a thousand rows in two tasks; compare early and late."""
    with tempfile.TemporaryDirectory(prefix="icefloe-bench-") as temporary:
        folder = Path(temporary)
        query = Harness(folder / "checkpoint", {"table": "bench.events", "warehouse": str(folder / "lake"), **options})
        inputs = [[event_rows(0, 500)], [event_rows(500, 500)]]
        seconds, cpu_seconds, sizes, record_bytes = [], [], [], []
        for epoch in range(epochs):
            began, cpu_began = time.perf_counter(), time.process_time()
            record = query.run(epoch, inputs)
            seconds.append(time.perf_counter() - began)
            cpu_seconds.append(time.process_time() - cpu_began)
            record_bytes.append(record.metadata.ByteSize())
            if epoch in (50, epochs - 1):
                sizes.append(sum(p.stat().st_size for p in (folder / "checkpoint/icefloe").rglob("*") if p.is_file()))
            # Spark keeps the last hundred entries of its own logs.
            for log in ("offsets", "commits"):
                (folder / "checkpoint" / log / str(epoch - 100)).unlink(missing_ok=True)
        early, late = early_and_late(seconds)
        cpu_early, cpu_late = early_and_late(cpu_seconds)
        return {
            "epochs": epochs,
            "early_ms": early * 1000,
            "late_ms": late * 1000,
            "ratio": late / early,
            "cpu_early_ms": cpu_early * 1000,
            "cpu_late_ms": cpu_late * 1000,
            "cpu_ratio": cpu_late / cpu_early,
            "record_bytes_early": max(record_bytes[50 - WINDOW : 50 + WINDOW + 1]),
            "record_bytes_late": max(record_bytes[-2 * WINDOW - 1 :]),
            "state_bytes_early": sizes[0],
            "state_bytes_late": sizes[1],
        }


def early_and_late(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the epochs around the fiftieth and of the last ones."""
    return (
        statistics.median(values[50 - WINDOW : 50 + WINDOW + 1]),
        statistics.median(values[-2 * WINDOW - 1 :]),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    # Nothing rolls within the run: pending rows gather until a row group is full.
    results = {
        "roll": grow({"visibility": "roll", "rollInterval": "1d", "rollInactivity": "1d"}, given.epochs),
        "batch": grow({"visibility": "batch", "keepSnapshots": "100"}, given.epochs),
    }
    for name, result in results.items():
        print(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in result.items()))
    if given.save is not None:
        given.save.mkdir(parents=True, exist_ok=True)
        (given.save / "growth.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
