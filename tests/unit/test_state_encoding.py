"""Codecs, chains of migrations, and the version in a file's metadata."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import pytest

from icefloe.errors import CorruptStateError, StateError, StateVersionError
from icefloe.proto import state_pb2 as pb
from icefloe.state import (
    BytesCodec,
    CheckpointParquetMetadata,
    KeyedCodecs,
    MigratableState,
    MsgpackCodec,
    ProtobufCodec,
    global_keyed_config,
)
from icefloe.state.memory_storage import MemoryStorage
from support.state_tables import open_tables, table_files


class LabelledCount(msgspec.Struct, MigratableState):
    """A count that gained a label; before that it was a bare number."""

    VERSION: ClassVar[int] = 1
    PreviousVersion: ClassVar[type] = int
    count: int
    label: str

    @classmethod
    def migrate(cls, previous: int) -> LabelledCount:
        return cls(previous, "none")


@dataclass
class SourcedCount(MigratableState):
    VERSION: ClassVar[int] = 2
    PreviousVersion: ClassVar[type] = LabelledCount
    count: int
    label: str
    source: str

    @classmethod
    def migrate(cls, previous: LabelledCount) -> SourcedCount:
        return cls(previous.count, previous.label, "unknown")


class RenamedCount(msgspec.Struct, MigratableState):
    VERSION: ClassVar[int] = 3
    PreviousVersion: ClassVar[type] = SourcedCount
    total: int
    labels: list[str]

    @classmethod
    def migrate(cls, previous: SourcedCount) -> RenamedCount:
        return cls(previous.count, [previous.label, previous.source])


def test_a_value_three_versions_old_is_migrated_three_times() -> None:
    codec = MsgpackCodec(RenamedCount)
    assert codec.decode_version(MsgpackCodec(int).encode(7), 0) == RenamedCount(7, ["none", "unknown"])
    assert codec.decode_version(MsgpackCodec(LabelledCount).encode(LabelledCount(7, "x")), 1) == RenamedCount(
        7, ["x", "unknown"]
    )
    assert (codec.oldest_version, codec.version) == (0, 3)


def test_a_table_is_restored_by_programs_three_versions_on() -> None:
    storage = MemoryStorage("migration-chain")
    metadata: list[pb.OperatorCheckpointMetadata] = []
    expected = None
    for version, (kind, value) in enumerate(
        [
            (int, 1),
            (LabelledCount, LabelledCount(2, "b")),
            (SourcedCount, SourcedCount(3, "c", "s")),
            (RenamedCount, RenamedCount(4, ["d"])),
        ]
    ):
        configs = {"counts": global_keyed_config("counts", "", state_version=version)}
        codecs = {"counts": (MsgpackCodec(str), MsgpackCodec(kind))}
        manager = open_tables(storage, metadata, configs=configs, codecs=codecs, merge_after=9)
        view = manager.get_global_keyed_state("counts")
        view.insert(f"v{version}", value)
        metadata = [manager.checkpoint(version + 1)]
        expected = dict(view.items())
    assert expected == {
        "v0": RenamedCount(1, ["none", "unknown"]),
        "v1": RenamedCount(2, ["b", "unknown"]),
        "v2": RenamedCount(3, ["c", "s"]),
        "v3": RenamedCount(4, ["d"]),
    }
    assert len(table_files(metadata[0], "counts")) == 4
    with pytest.raises(StateVersionError) as caught:
        open_tables(
            storage,
            metadata,
            configs={"counts": global_keyed_config("counts", "", state_version=1)},
            codecs={"counts": (MsgpackCodec(str), MsgpackCodec(LabelledCount))},
        )
    assert (caught.value.found, caught.value.supported) == (3, 1)
    assert "counts" in caught.value.object_name


def test_a_file_of_a_newer_version_is_refused_by_name_even_when_its_metadata_says_less() -> None:
    storage = MemoryStorage("newer-file")
    configs = {"counts": global_keyed_config("counts", "", state_version=1)}
    codecs = {"counts": (MsgpackCodec(str), MsgpackCodec(LabelledCount))}
    manager = open_tables(storage, configs=configs, codecs=codecs)
    manager.get_global_keyed_state("counts").insert("a", LabelledCount(1, "x"))
    metadata = manager.checkpoint(1)
    metadata.table_configs["counts"].state_version = 0
    with pytest.raises(StateVersionError) as caught:
        open_tables(storage, [metadata], configs={"counts": global_keyed_config("counts", "")}, codecs={})
    (file,) = table_files(metadata, "counts")
    assert caught.value.object_name == file.file


def test_version_errors_survive_pickling() -> None:
    error = StateVersionError("ICEFLOE_X", "text", found=3, supported=1, object_name="name")
    again = pickle.loads(pickle.dumps(error))
    assert (again.found, again.supported, again.object_name, str(again)) == (3, 1, "name", "ICEFLOE_X: text")


def test_a_chain_that_skips_a_version_is_refused() -> None:
    class Skips(msgspec.Struct, MigratableState):
        VERSION: ClassVar[int] = 3
        PreviousVersion: ClassVar[type] = LabelledCount
        count: int

    with pytest.raises(StateError, match="ICEFLOE_STATE_MIGRATION_CHAIN: Skips is version 3"):
        MsgpackCodec(Skips)


def test_the_configured_version_must_be_that_of_the_codecs() -> None:
    with pytest.raises(StateError, match="ICEFLOE_STATE_VERSION_CONFIG"):
        open_tables(
            MemoryStorage("version-config"),
            configs={"counts": global_keyed_config("counts", "", state_version=2)},
            codecs={"counts": (MsgpackCodec(str), MsgpackCodec(LabelledCount))},
        )


def test_protobuf_values_migrate_through_codecs() -> None:
    old = ProtobufCodec(pb.KeyRange)
    new = ProtobufCodec(
        pb.ParquetTimeFile, version=1, previous=old, migrate=lambda k: pb.ParquetTimeFile(min_routing_key=k.key)
    )
    assert new.decode_version(old.encode(pb.KeyRange(key=5)), 0).min_routing_key == 5
    assert new.decode(new.encode(pb.ParquetTimeFile(rows=3))).rows == 3
    with pytest.raises(StateError, match="ICEFLOE_STATE_MIGRATION_CHAIN"):
        ProtobufCodec(pb.ParquetTimeFile, version=3, previous=old, migrate=lambda k: pb.ParquetTimeFile())


@pytest.mark.parametrize(
    ("codec", "data"),
    [(MsgpackCodec(int), b"\xa1x"), (MsgpackCodec(str), b"\xff\xff"), (ProtobufCodec(pb.KeyRange), b"\xff")],
)
def test_bytes_of_another_type_are_corrupt_state(codec: MsgpackCodec[object], data: bytes) -> None:
    with pytest.raises(CorruptStateError, match="ICEFLOE_STATE_VALUE_UNREADABLE"):
        codec.decode(data)


def test_a_pickle_is_never_loaded() -> None:
    with pytest.raises(CorruptStateError):
        MsgpackCodec(int).decode(pickle.dumps(print))


def test_equal_keys_give_equal_bytes_whatever_the_order_of_a_dict() -> None:
    codec = MsgpackCodec(dict[str, int])
    assert codec.encode({"a": 1, "b": 2}) == codec.encode({"b": 2, "a": 1})


def test_key_and_value_with_versions_that_differ_are_refused() -> None:
    with pytest.raises(StateError, match=r"versions \[1, 3\]"):
        KeyedCodecs(MsgpackCodec(LabelledCount), MsgpackCodec(RenamedCount))
    assert KeyedCodecs(MsgpackCodec(str), MsgpackCodec(RenamedCount)).version == 3
    assert KeyedCodecs(BytesCodec(), BytesCodec()).version == 0


def test_the_state_version_goes_into_parquet_metadata_and_back() -> None:
    stored = CheckpointParquetMetadata(3).to_key_values()
    assert CheckpointParquetMetadata.from_key_values({**stored, b"x": b"y"}, object_name="f").state_version == 3
    assert CheckpointParquetMetadata.without({**stored, b"x": b"y"}) == {b"x": b"y"}
    for foreign in (None, {}, {b"icefloe.state_version": b"three"}):
        with pytest.raises(CorruptStateError, match=r"ICEFLOE_STATE_FILE_FOREIGN: some\.parquet"):
            CheckpointParquetMetadata.from_key_values(foreign, object_name="some.parquet")
