"""What tests need to know about an S3 service: its address, its keys, and a fresh bucket per test."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import boto3


@dataclass(frozen=True, slots=True)
class S3Service:
    """An S3 endpoint with the keys of its administrator."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    region: str = "us-east-1"

    @property
    def options(self) -> dict[str, str]:
        """The ``s3.*`` options of the sink (and of PyIceberg) that reach this service."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
        }

    def client(self, service: str = "s3") -> Any:
        """A boto3 client of this endpoint: the tests' own eyes, independent of the code under test."""
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
        )

    def new_bucket(self) -> Bucket:
        """Create an empty bucket under a name that was never used before."""
        name = f"test-{uuid.uuid4().hex[:20]}"
        client = self.client()
        client.create_bucket(Bucket=name)
        client.close()
        return Bucket(name, self)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that belongs to one test."""

    name: str
    service: S3Service

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    @property
    def options(self) -> dict[str, str]:
        """Plain ``s3.*`` options, a new dict at each call."""
        return self.service.options

    def keys(self, prefix: str = "") -> list[str]:
        """All object keys under ``prefix``, in order, as the service itself lists them."""
        client = self.service.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        client.close()
        return keys

    def open_uploads(self) -> list[str]:
        """Keys of the multipart uploads that were begun and neither completed nor aborted."""
        client = self.service.client()
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=self.name)
        keys = [entry["Key"] for page in pages for entry in page.get("Uploads", [])]
        client.close()
        return keys
