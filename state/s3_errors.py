"""What an S3 call that failed means: try again, not there, lost a race, or for the operator."""

from __future__ import annotations

import http.client
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, HTTPClientError, NoCredentialsError, PartialCredentialsError
from botocore.parsers import ResponseParserError

from icefloe.errors import NotFoundError, StorageError

# Codes that stores answer with a 4xx status although the next try may succeed.
_TRANSIENT_CODES = frozenset({"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "IncompleteBody"})
_DENIED_STATUS = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Refusal:
    """The store's own answer: HTTP status and error code."""

    status: int
    code: str


def refusal_of(error: BaseException) -> Refusal | None:
    """Return the store's answer that ``error`` (or what it was raised from) carries; None when there was no answer."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return Refusal(int(status), str(response.get("Error", {}).get("Code", "")))
    return None


def is_transient(error: Exception) -> bool:
    """Whether another try may succeed. A call that got no answer is transient: it may or may not have landed."""
    refusal = refusal_of(error)
    if refusal is None:
        return _is_broken_connection(error)
    if refusal.status in (408, 409, 429) or refusal.code in _TRANSIENT_CODES:
        return True
    return refusal.status >= 500 and refusal.status != 501


def storage_error(error: Exception, what: str) -> StorageError:
    """Return the typed error for a call that failed for good. ``what`` says what was tried, on which object."""
    refusal = refusal_of(error)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        text = f"{what}: no keys; give s3.access-key-id and s3.secret-access-key, or set them in the environment"
        return StorageError("ICEFLOE_STORAGE_DENIED", text)
    if refusal is None:
        return StorageError("ICEFLOE_STORAGE_FAILED", f"{what}: {type(error).__name__}: {error}")
    if refusal.code == "NoSuchBucket":
        return StorageError("ICEFLOE_STORAGE_BUCKET_MISSING", f"{what}: the bucket does not exist; create it first")
    if refusal.status == 404:
        return NotFoundError("ICEFLOE_STORAGE_NOT_FOUND", f"{what}: it is not there")
    text = f"{what}: the store answered {refusal.status} {refusal.code}: {error}"
    if refusal.status in _DENIED_STATUS:
        return StorageError("ICEFLOE_STORAGE_DENIED", f"{text}; check the keys, their rights and s3.region")
    return StorageError("ICEFLOE_STORAGE_FAILED", text)


def _is_broken_connection(error: Exception) -> bool:
    # aiohttp's errors for a reply that ended early are OSErrors or named ClientPayloadError; s3fs passes them through.
    broken = (HTTPClientError, ResponseParserError, http.client.IncompleteRead, ConnectionError, TimeoutError)
    return isinstance(error, broken) or type(error).__name__ in ("ClientPayloadError", "IncompleteReadError")


def is_store_error(error: Exception) -> bool:
    """Whether ``error`` comes from the store or the way to it, as opposed to a mistake in this program."""
    return isinstance(error, OSError | BotoCoreError) or refusal_of(error) is not None or is_transient(error)
