"""SeaweedFS in a process of its own: S3 with real signatures, and an Iceberg REST catalog beside it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.ports import LOOPBACK, free_ports
from support.processes import Launch, start
from support.s3_service import S3Service

ACCESS_KEY_ID = "icefloe-test"
SECRET_ACCESS_KEY = "icefloe-test-secret"

# Every port that `weed mini` would otherwise take by default, so that several may run side by side.
_PORT_FLAGS = (
    "s3.port",
    "s3.port.iceberg",
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "admin.port",
    "admin.port.grpc",
)


@dataclass(frozen=True, slots=True)
class Seaweed:
    """A running SeaweedFS."""

    s3: S3Service
    iceberg_uri: str

    def new_warehouse(self) -> str:
        """Create an empty warehouse (a bucket for tables: a catalog of its own) and return its ``s3://`` address."""
        name = f"warehouse-{uuid.uuid4().hex[:20]}"
        client = self.s3.client("s3tables")
        client.create_table_bucket(name=name)
        client.close()
        return f"s3://{name}"

    def catalog_properties(self, warehouse: str) -> dict[str, str]:
        """PyIceberg properties of the REST catalog: ``load_catalog("rest", **properties)``."""
        return {
            "type": "rest",
            "uri": self.iceberg_uri,
            "warehouse": warehouse,
            "rest.sigv4-enabled": "true",
            "rest.signing-name": "s3tables",
            "rest.signing-region": self.s3.region,
            "client.region": self.s3.region,
            "client.access-key-id": self.s3.access_key_id,
            "client.secret-access-key": self.s3.secret_access_key,
            **self.s3.options,
        }


@contextmanager
def running_seaweed() -> Iterator[Seaweed]:
    """A fresh SeaweedFS with one administrator, gone with all it stored when the block ends."""
    ports: dict[str, int] = {}

    def launch(scratch: Path) -> Launch:
        ports.update(zip(_PORT_FLAGS, free_ports(len(_PORT_FLAGS)), strict=True))
        return _launch(scratch, ports)

    service = start("seaweed", launch)
    try:
        s3 = S3Service(f"http://{LOOPBACK}:{ports['s3.port']}", ACCESS_KEY_ID, SECRET_ACCESS_KEY)
        yield Seaweed(s3, f"http://{LOOPBACK}:{ports['s3.port.iceberg']}")
    finally:
        service.stop()


def _launch(scratch: Path, ports: dict[str, int]) -> Launch:
    data = scratch / "data"
    data.mkdir()
    return Launch(
        command=[
            str(Path(sys.executable).parent / "weed"),
            "mini",
            f"-dir={data}",
            f"-ip={LOOPBACK}",
            f"-ip.bind={LOOPBACK}",
            "-master.telemetry=false",
            "-admin.ui=false",
            "-webdav=false",
            # A bucket takes volumes of its own, and every test a bucket.
            "-volume.max=10000",
            "-s3.port.lance=0",
            # Relative to the scratch folder: a socket's path has room for about a hundred bytes.
            "-filer.localSocket=filer.sock",
            "-s3.localSocket=s3.sock",
            *(f"-{flag}={port}" for flag, port in ports.items()),
        ],
        # The catalog is the last part to come up, and it answers without a signature here.
        ready_url=f"http://{LOOPBACK}:{ports['s3.port.iceberg']}/v1/config",
        # `weed mini` makes an administrator of these keys; it looks for configuration under HOME.
        env={
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
        },
        # It puts these sockets into /tmp whatever TMPDIR says, and does not always take them away.
        leftovers=[
            f"/tmp/seaweedfs-{flag.split('.')[0]}-grpc-{port}.sock"
            for flag, port in ports.items()
            if flag.endswith(".grpc")
        ],
    )
