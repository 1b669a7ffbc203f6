"""Typed keys and values to bytes and back: msgpack by msgspec, or protobuf. Nothing stored is ever unpickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec
from google.protobuf.message import DecodeError, Message

from icefloe.errors import CorruptStateError, StateError
from icefloe.state.migration import migration_steps, version_chain, version_of

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Codec(Protocol[T]):
    """Encodes one type. Equal keys must give equal bytes: a table finds a key by its bytes."""

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T:
        """Raise ``CorruptStateError`` for bytes that are not of the type."""
        ...


@runtime_checkable
class MigratingCodec(Protocol[T]):
    """A codec that also reads what older versions of the program wrote, ``oldest_version`` to ``version``."""

    @property
    def version(self) -> int: ...

    @property
    def oldest_version(self) -> int: ...

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T: ...

    def decode_version(self, data: bytes, version: int) -> T: ...


class BytesCodec:
    """Bytes as they are: for owners that encode by themselves."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data


class MsgpackCodec(Generic[T]):
    """Any type that msgspec can check, as msgpack; a ``MigratableState`` with its whole chain.

    Raises ``StateError`` when the chain of versions is broken.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._chain = version_chain(kind)
        self._steps = migration_steps(self._chain)
        self._decoders = {version: msgspec.msgpack.Decoder(of) for version, of in self._chain.items()}
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self.version = version_of(kind)
        self.oldest_version = min(self._chain)

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        return self.decode_version(data, self.version)

    def decode_version(self, data: bytes, version: int) -> T:
        """Decode what ``version`` wrote and migrate it step by step."""
        try:
            value: Any = self._decoders[version].decode(data)
        except msgspec.DecodeError as error:
            raise _unreadable(self._chain[version], error) from error
        for step in range(version, self.version):
            value = self._steps[step](value)
        return value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ProtobufCodec(Generic[M]):
    """A protobuf message, serialised in a fixed order. With ``previous`` and ``migrate`` it reads older versions."""

    message: type[M]
    version: int = 0
    previous: MigratingCodec[Any] | None = None
    migrate: Callable[[Any], M] | None = None

    def __post_init__(self) -> None:
        if (self.previous is None) != (self.migrate is None) or (
            self.previous is not None and self.previous.version != self.version - 1
        ):
            raise StateError(
                "ICEFLOE_STATE_MIGRATION_CHAIN",
                f"a codec of {self.message.__name__} version {self.version} needs both a previous codec of version "
                f"{self.version - 1} and a migrate function, or neither",
            )

    @property
    def oldest_version(self) -> int:
        return self.version if self.previous is None else self.previous.oldest_version

    def encode(self, value: M) -> bytes:
        return value.SerializeToString(deterministic=True)

    def decode(self, data: bytes) -> M:
        return self.decode_version(data, self.version)

    def decode_version(self, data: bytes, version: int) -> M:
        """Decode what ``version`` wrote and migrate it step by step."""
        if version != self.version and self.previous is not None and self.migrate is not None:
            return self.migrate(self.previous.decode_version(data, version))
        try:
            return self.message.FromString(data)
        except DecodeError as error:
            raise _unreadable(self.message, error) from error


@dataclass(frozen=True, slots=True)
class KeyedCodecs:
    """The key type and the value type of a table. Raises ``StateError`` when both have versions that differ."""

    key: Codec[Any] = field(default_factory=BytesCodec)
    value: Codec[Any] = field(default_factory=BytesCodec)

    def __post_init__(self) -> None:
        versions = {codec.version for codec in self._versioned()}
        if len(versions) > 1:
            raise StateError(
                "ICEFLOE_STATE_MIGRATION_CHAIN",
                f"key and value have the versions {sorted(versions)}: a table has one version, raise both together",
            )

    @property
    def version(self) -> int:
        """The version that new files are written with."""
        return max((codec.version for codec in self._versioned()), default=0)

    @property
    def oldest_version(self) -> int:
        """The oldest version of a file that can be read."""
        return max((codec.oldest_version for codec in self._versioned()), default=0)

    def _versioned(self) -> list[MigratingCodec[Any]]:
        return [codec for codec in map(_versions, (self.key, self.value)) if codec is not None]

    def upgrade(self, key: bytes, value: bytes | None, version: int) -> tuple[bytes, bytes | None]:
        """Return a stored key and value (None: a tombstone) of ``version`` as this version stores them."""
        return _upgrade(self.key, key, version), None if value is None else _upgrade(self.value, value, version)


def _versions(codec: Codec[Any]) -> MigratingCodec[Any] | None:
    # Version 0 says "has never changed" and goes with any version of the other one.
    return codec if isinstance(codec, MigratingCodec) and codec.version else None


def _upgrade(codec: Codec[Any], data: bytes, version: int) -> bytes:
    versioned = _versions(codec)
    return data if versioned is None else versioned.encode(versioned.decode_version(data, version))


def _unreadable(kind: Any, error: Exception) -> CorruptStateError:
    name = getattr(kind, "__name__", str(kind))
    return CorruptStateError("ICEFLOE_STATE_VALUE_UNREADABLE", f"stored bytes are not a {name}: {error}")
