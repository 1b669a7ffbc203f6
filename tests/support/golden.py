"""State as a release wrote it, kept in the repository: what later releases must go on from.

    python tests/support/golden.py    writes tests/compat/state-v1 anew; only for a new version of the format

The target is a bucket of a fixed name, so that the state names no path of the machine that wrote it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.harness import Harness, event_rows
from support.moto_server import running_moto
from support.s3_service import S3Service

BUCKET = "icefloe-golden"
STATE = Path(__file__).parents[1] / "compat" / "state-v1"
BATCHES, ROWS = 3, 400


def golden_query(checkpoint: Path, service: S3Service) -> Harness:
    """Return the query that wrote the state, or that goes on from it."""
    options = {
        "path": f"s3://{BUCKET}/events",
        "visibility": "roll",
        "partitionBy": "region",
        "rowGroupSize": "4KB",
        "compression": "snappy",
        **service.options,
    }
    return Harness(checkpoint, options, job_id="00000000-0000-4000-8000-000000000001")


def run_batch(query: Harness, batch: int) -> None:
    """Run one micro-batch with two tasks."""
    start = batch * ROWS
    query.run(batch, [[event_rows(start, ROWS // 2)], [event_rows(start + ROWS // 2, ROWS // 2)]])


def main() -> None:
    shutil.rmtree(STATE, ignore_errors=True)
    with running_moto() as service:
        client = service.client()
        client.create_bucket(Bucket=BUCKET)
        query = golden_query(STATE, service)
        for batch in range(BATCHES):
            run_batch(query, batch)
        client.close()


if __name__ == "__main__":
    main()
