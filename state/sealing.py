"""The envelope around every metadata object: damage and newer formats are told before anything inside is believed."""

from __future__ import annotations

import zlib
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from icefloe.errors import CorruptStateError, StateVersionError
from icefloe.proto.state_pb2 import Sealed

# Version of the whole state format that this release writes, and the highest that it reads.
FORMAT_VERSION = 1

M = TypeVar("M", bound=Message)


def seal(message: Message) -> bytes:
    """Return the bytes to store: the message with its kind, format version and checksum. Same message, same bytes."""
    payload = message.SerializeToString(deterministic=True)
    kind = message.DESCRIPTOR.full_name
    sealed = Sealed(
        format_version=FORMAT_VERSION,
        kind=kind,
        payload_crc32=_checksum(kind, payload),
        payload=payload,
    )
    return sealed.SerializeToString(deterministic=True)


def unseal(data: bytes, message_type: type[M], object_name: str) -> M:
    """Return the message that ``seal`` stored.

    Raises ``StateVersionError`` for a format that a newer release wrote, and ``CorruptStateError`` for bytes that are
    cut, changed, extended, or another kind of object. Both name the object.
    """
    sealed = Sealed()
    try:
        sealed.ParseFromString(data)
    except DecodeError as error:
        raise _corrupt(object_name, f"{len(data)} bytes that are no sealed state object") from error
    if sealed.format_version > FORMAT_VERSION:
        raise newer_format(sealed.format_version, object_name)
    if sealed.format_version == 0 or not sealed.kind:
        raise _corrupt(object_name, f"{len(data)} bytes without a format version and kind")
    expected = message_type.DESCRIPTOR.full_name
    if sealed.kind != expected:
        raise _corrupt(object_name, f"a {sealed.kind} where a {expected} belongs")
    crc32 = _checksum(sealed.kind, sealed.payload)
    if crc32 != sealed.payload_crc32:
        raise _corrupt(object_name, f"checksum {crc32:08x} where {sealed.payload_crc32:08x} was written")
    # A field that appears twice, or one that this version does not have: the checksum covers neither.
    sealed.DiscardUnknownFields()
    if sealed.ByteSize() != len(data):
        raise _corrupt(object_name, f"{len(data) - sealed.ByteSize()} bytes that do not belong to it")
    message = message_type()
    try:
        message.ParseFromString(sealed.payload)
    except DecodeError as error:
        raise _corrupt(object_name, f"a {expected} that does not parse") from error
    return message


def newer_format(found: int, object_name: str) -> StateVersionError:
    """Return the error for an object whose format version is above ``FORMAT_VERSION``."""
    return StateVersionError(
        "ICEFLOE_STATE_NEWER",
        f"{object_name} has state format {found} and this release reads up to {FORMAT_VERSION}: "
        "run the release that wrote it, or a later one",
        found=found,
        supported=FORMAT_VERSION,
        object_name=object_name,
    )


def _checksum(kind: str, payload: bytes) -> int:
    # The kind is in it because the CRC-32 of nothing is 0, and so is a field that was cut off.
    return zlib.crc32(payload, zlib.crc32(kind.encode()))


def _corrupt(object_name: str, found: str) -> CorruptStateError:
    return CorruptStateError(
        "ICEFLOE_STATE_CORRUPT",
        f"{object_name} holds {found}: restore this object from a copy; it was not used and nothing was started afresh",
    )
