"""What a bucket's own rules will delete, as far as the keys at hand may ask: nothing here ever fails a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from icefloe.errors import IcefloeError
from icefloe.state.opening import open_storage


def upload_expiry_days(url: str, options: Mapping[str, str]) -> int | None:
    """Return after how many days the bucket ends unfinished uploads here; None where it does not or is mute."""
    ends = (rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation") for rule in _rules(url, options))
    return min((int(days) for days in ends if days is not None), default=None)


def expiry_days(url: str, options: Mapping[str, str]) -> int | None:
    """Return after how many days the bucket deletes objects under ``url``; None where it does not, or is mute."""
    ends = (rule.get("Expiration", {}).get("Days") for rule in _rules(url, options))
    return min((int(days) for days in ends if days is not None), default=None)


def _rules(url: str, options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    if not url.startswith(("s3://", "s3a://", "s3n://")):
        return
    storage: Any = open_storage(url, options)
    bucket, key = storage.bucket_and_key("x")
    try:
        reply = storage.request("get_bucket_lifecycle_configuration", what="reading lifecycle rules", Bucket=bucket)
    except IcefloeError:
        # No rules, no right to read them, or a store that has none.
        return
    for rule in reply.get("Rules", ()):
        prefix = rule.get("Prefix") or _filter_prefix(rule.get("Filter", {}))
        if rule.get("Status") == "Enabled" and (key.startswith(prefix) or prefix.startswith(key.removesuffix("x"))):
            yield rule


def _filter_prefix(chosen: Mapping[str, Any]) -> str:
    return str(chosen.get("Prefix") or chosen.get("And", {}).get("Prefix") or "")
