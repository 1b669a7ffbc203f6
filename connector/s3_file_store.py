"""Data files on S3 and on stores that speak its protocol, by multipart uploads. Loaded only for S3 locations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from icefloe.connector.data_names import job8, parse
from icefloe.connector.durable_disk import segment_gone, segment_short
from icefloe.connector.multipart import Part, Upload
from icefloe.errors import NotFoundError, StorageError
from icefloe.state.crash_points import crash_point
from icefloe.state.opening import open_storage
from icefloe.state.s3_errors import refusal_of
from icefloe.state.s3_storage import S3Storage
from icefloe.state.storage import ObjectInfo, StorageProvider

# User metadata of every object: with the length, the proof that it is what this attempt made.
ATTEMPT_KEY = "icefloe-attempt"
MIN_PART_BYTES = 5 * 1024 * 1024


class S3FileStore:
    """A ``FileStore`` on a prefix of a bucket. Nothing is visible before ``complete``, so every file is hidden."""

    min_part_bytes = MIN_PART_BYTES
    # A bucket's lifecycle rule may abort uploads after some days.
    uploads_expire = True

    def __init__(self, storage: S3Storage, *, job_id: str) -> None:
        self._storage = storage
        self._job_id = job_id

    @classmethod
    def open(cls, url: str, options: Mapping[str, str], *, job_id: str) -> S3FileStore:
        """Return the store of an ``s3://`` URL; ``options`` as for state. Nothing is contacted."""
        storage = open_storage(url, options)
        assert isinstance(storage, S3Storage)
        return cls(storage, job_id=job_id)

    @property
    def url(self) -> str:
        return self._storage.url

    def begin(self, name: str, attempt_id: str, *, hidden: bool) -> Upload:
        # A retry whose first try had landed leaves an empty upload behind, which clean-up ends.
        reply = self._request("create_multipart_upload", name, "beginning", Metadata={ATTEMPT_KEY: attempt_id})
        crash_point("file.begun")
        return Upload(name, attempt_id, str(reply["UploadId"]))

    def put_part(self, upload: Upload, number: int, offset_bytes: int, data: Sequence[bytes | memoryview]) -> Part:
        whole = _joined(data)
        reply = self._request(
            "upload_part",
            upload.name,
            f"uploading part {number} of",
            UploadId=upload.upload_id,
            PartNumber=number,
            Body=whole,
        )
        return Part(number, len(whole), str(reply["ETag"]))

    def copy_part(
        self, upload: Upload, number: int, offset_bytes: int, source: StorageProvider, key: str, start: int, length: int
    ) -> Part:
        try:
            size = source.size(key)
            if size < start + length:
                raise segment_short(source, key, start + length, size)
            if self.copies_from(source):
                etag = self._copy(upload, number, source, key, start, length)
                if etag is not None:
                    return Part(number, length, etag)
            data = source.get_range(key, start, length)
        except NotFoundError as error:
            raise segment_gone(source, key) from error
        return self.put_part(upload, number, offset_bytes, [data])

    def copies_from(self, source: StorageProvider) -> bool:
        # Another endpoint or other keys cannot be told from here; the same connection can.
        return isinstance(source, S3Storage) and source.filesystem is self._storage.filesystem

    def seal(self, upload: Upload, length_bytes: int) -> None:
        # Each part was durable when its request returned.
        crash_point("file.sealed")

    def complete(self, upload: Upload, parts: Sequence[Part]) -> None:
        listed = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        length = sum(part.length_bytes for part in parts)
        try:
            self._request(
                "complete_multipart_upload",
                upload.name,
                "completing",
                UploadId=upload.upload_id,
                MultipartUpload={"Parts": listed},
            )
        except StorageError as error:
            # A repeated completion, also one by our own retry, may be refused; what stands there decides.
            if self._is_made_by(upload, length):
                return
            stored = None if isinstance(error, NotFoundError) else self._stored_parts(upload)
            if stored is None:
                raise NotFoundError(
                    "ICEFLOE_UPLOAD_GONE",
                    f"the upload of {upload.name!r} to {self.url} is gone, and the object is not there with attempt "
                    f"{upload.attempt_id} and {length} bytes: a lifecycle rule or somebody ended it",
                ) from error
            if not _differ_only_by_etag(parts, stored):
                raise
            # A try of put_part that landed after its own repeat leaves the same bytes under another ETag wherever ETags
            # are not checksums (SSE-KMS). The upload is one attempt's own (R1), so number and length name the bytes.
            self.complete(upload, stored)
            return
        crash_point("file.completed")

    def abort(self, upload: Upload) -> None:
        try:
            self._request("abort_multipart_upload", upload.name, "aborting", UploadId=upload.upload_id)
        except NotFoundError:
            return

    def put(self, name: str, attempt_id: str, data: Sequence[bytes | memoryview]) -> None:
        self._request("put_object", name, "writing", Body=_joined(data), Metadata={ATTEMPT_KEY: attempt_id})
        crash_point("file.put")

    def list_unfinished(self) -> Iterator[Upload]:
        own = job8(self._job_id)
        for entry in self._open_uploads():
            data = parse(entry["Key"].removeprefix(self._key_prefix()))
            if data is not None and data.job8 == own:
                yield Upload(str(data), data.attempt_id, entry["UploadId"])

    def exists(self, name: str) -> int | None:
        try:
            return self._storage.size(name)
        except NotFoundError:
            return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._storage.list(prefix)

    def delete_if_present(self, name: str) -> bool:
        return self._storage.delete_if_present(name)

    def _copy(
        self, upload: Upload, number: int, source: StorageProvider, key: str, start: int, length: int
    ) -> str | None:
        assert isinstance(source, S3Storage)
        bucket, name = source.bucket_and_key(key)
        try:
            reply = self._request(
                "upload_part_copy",
                upload.name,
                f"copying segment {key!r} as part {number} of",
                UploadId=upload.upload_id,
                PartNumber=number,
                CopySource={"Bucket": bucket, "Key": name},
                CopySourceRange=f"bytes={start}-{start + length - 1}",
            )
        except StorageError as error:
            refusal = refusal_of(error.__cause__) if error.__cause__ is not None else None
            if refusal is not None and refusal.status == 501:
                return None
            raise
        return str(reply["CopyPartResult"]["ETag"])

    def _is_made_by(self, upload: Upload, length_bytes: int) -> bool:
        try:
            found = self._request("head_object", upload.name, "looking for")
        except NotFoundError:
            return False
        return bool(
            found["ContentLength"] == length_bytes and found.get("Metadata", {}).get(ATTEMPT_KEY) == upload.attempt_id
        )

    def _stored_parts(self, upload: Upload) -> tuple[Part, ...] | None:
        """Return the parts that the store holds, by number; None where the upload is gone."""
        parts: tuple[Part, ...] = ()
        while True:
            try:
                page = self._request(
                    "list_parts",
                    upload.name,
                    "looking for the upload of",
                    UploadId=upload.upload_id,
                    PartNumberMarker=parts[-1].number if parts else 0,
                )
            except NotFoundError:
                return None
            parts += tuple(Part(part["PartNumber"], part["Size"], part["ETag"]) for part in page.get("Parts", ()))
            if not page.get("IsTruncated"):
                return parts

    def _open_uploads(self) -> Iterator[dict[str, Any]]:
        bucket = self._storage.bucket_and_key("x")[0]
        parameters: dict[str, Any] = {"Bucket": bucket, "Prefix": self._key_prefix()}
        while True:
            page = self._storage.request("list_multipart_uploads", what="listing unfinished uploads", **parameters)
            yield from page.get("Uploads", ())
            if not page.get("IsTruncated"):
                return
            parameters["KeyMarker"] = page["NextKeyMarker"]
            parameters["UploadIdMarker"] = page["NextUploadIdMarker"]

    def _key_prefix(self) -> str:
        return self._storage.bucket_and_key("x")[1].removesuffix("x")

    def _request(self, method: str, name: str, doing: str, **parameters: Any) -> Any:
        bucket, key = self._storage.bucket_and_key(name)
        return self._storage.request(method, what=f"{doing} {name!r}", Bucket=bucket, Key=key, **parameters)

    def __repr__(self) -> str:
        return f"S3FileStore({self.url!r})"


def _differ_only_by_etag(given: Sequence[Part], stored: Sequence[Part]) -> bool:
    same_bytes = [(p.number, p.length_bytes) for p in given] == [(p.number, p.length_bytes) for p in stored]
    # Some stores list ETags without their quotes.
    return same_bytes and [p.etag.strip('"') for p in given] != [p.etag.strip('"') for p in stored]


def _joined(data: Sequence[bytes | memoryview]) -> bytes:
    # Plain bytes, whatever they cost: a file-like body would be at its end when a request is tried again.
    return data[0] if len(data) == 1 and isinstance(data[0], bytes) else b"".join(data)
