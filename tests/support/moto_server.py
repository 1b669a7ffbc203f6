"""moto in a process of its own: S3 and Glue on one address."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.ports import LOOPBACK, free_ports
from support.processes import Launch, start
from support.s3_service import S3Service


@contextmanager
def running_moto() -> Iterator[S3Service]:
    """A fresh moto server, gone with all it held when the block ends. Any keys are accepted.

    moto keeps what it stores in memory, checks no signature and does not check that part numbers have no gaps:
    what depends on those is tested on SeaweedFS.
    """
    service = start("moto", _launch)
    try:
        yield S3Service(service.ready_url.removesuffix("/moto-api/"), "testing", "testing")
    finally:
        service.stop()


def _launch(scratch: Path) -> Launch:
    (port,) = free_ports(1)
    return Launch(
        command=[sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)],
        ready_url=f"http://{LOOPBACK}:{port}/moto-api/",
        # Large bodies go to temporary files: they belong in the scratch folder. moto calls itself with these keys.
        env={"TMPDIR": str(scratch), "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"},
    )
