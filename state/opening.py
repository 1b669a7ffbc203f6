"""From a URL and options to the storage provider behind it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from icefloe.errors import OptionError
from icefloe.state.local_storage import LocalStorage
from icefloe.state.memory_storage import MemoryStorage
from icefloe.state.storage import StorageProvider

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def open_storage(url: str, options: Mapping[str, str] = _NO_OPTIONS) -> StorageProvider:
    """Return the provider for ``memory://name``, ``file:`` or an absolute path, or ``s3://bucket/prefix``.

    Nothing is contacted or created before the first call of the provider. For S3 the options ``s3.endpoint``,
    ``s3.region``, ``s3.access-key-id``, ``s3.secret-access-key`` and ``s3.session-token`` are used, and the environment
    where they are missing; other keys are left alone. Raises ``OptionError`` for any other URL.
    """
    if url.startswith("/"):
        return LocalStorage(Path(url))
    # Not urlsplit: '#' and '?' are plain characters in paths and keys.
    scheme, colon, rest = url.partition(":")
    if scheme == "memory":
        return _open_memory(url)
    if scheme == "file":
        return _open_local(url, rest)
    if scheme in ("s3", "s3a", "s3n"):
        return _open_s3(url, options)
    if not colon or "/" in scheme:
        raise OptionError(
            "ICEFLOE_STORAGE_URL_INVALID", f"{url!r} is not a location: give an absolute path, file: or s3:// URL"
        )
    raise OptionError(
        "ICEFLOE_STORAGE_UNSUPPORTED",
        f"{url!r}: {scheme}:// is not supported yet; state can live on a local path, file: or s3://",
    )


def _open_memory(url: str) -> StorageProvider:
    name = url.removeprefix("memory://").strip("/")
    if not url.startswith("memory://") or not name:
        raise OptionError("ICEFLOE_STORAGE_URL_INVALID", f"{url!r} has no name: write memory://name")
    return MemoryStorage(name)


def _open_local(url: str, rest: str) -> StorageProvider:
    path = rest.removeprefix("//").removeprefix("localhost") if rest.startswith("//") else rest
    if not path.startswith("/"):
        raise OptionError(
            "ICEFLOE_STORAGE_URL_INVALID", f"{url!r} is not a local location: write file:///absolute/path"
        )
    return LocalStorage(Path(unquote(path)))


def _open_s3(url: str, options: Mapping[str, str]) -> StorageProvider:
    # Imported only here: S3 libraries cost half a second that local jobs need not pay.
    from icefloe.state.s3_connection import S3Options
    from icefloe.state.s3_storage import S3Storage

    bucket, _, prefix = url.partition("://")[2].partition("/")
    if not bucket:
        raise OptionError("ICEFLOE_STORAGE_URL_INVALID", f"{url!r} names no bucket: write s3://bucket/prefix")
    return S3Storage(bucket, prefix.strip("/"), S3Options.from_mapping(options))
