"""What driver and tasks agree on about an Iceberg table: plain values that travel by pickle, without PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import mmh3

# Depth and width of the entropy folders of Iceberg's object storage layout: 0101/0110/1001/00101110.
_HASH_BITS = 20
_ENTROPY_FOLDERS = 3
_ENTROPY_BITS = 4


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Which table, in which catalog, and what the sink may do to it. ``repr`` shows no property value."""

    identifier: str
    catalog_name: str | None = None
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str | None = None
    create: bool = True
    partition_by: str | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict)
    merge_schema: bool = False
    keep_snapshots: int | None = None
    # Keys with or without the leading "s3.".
    s3: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PartitionFieldPlan:
    """One field of the table's partition spec. ``transform`` and ``result_type`` are in Iceberg's own spelling."""

    name: str
    field_id: int
    source_name: str
    source_id: int
    transform: str
    result_type: str


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Everything a task needs to write files of one table: valid for one epoch, since credentials in it may expire."""

    identifier: str
    table_uuid: str
    format_version: int
    schema_id: int
    spec_id: int
    # The table's current schema in Iceberg's JSON form, field ids included.
    iceberg_schema_json: str
    partition_fields: tuple[PartitionFieldPlan, ...]
    data_location: str
    # Iceberg's object storage layout: folders of hash bits before the file, to spread load over S3 prefixes.
    object_storage: bool
    object_storage_partitioned: bool
    properties: Mapping[str, str]
    storage_options: Mapping[str, str] = field(repr=False)
    target_file_size_bytes: int

    def relative_name(self, file_name: str, partition_path: str = "") -> str:
        """Return where a new file belongs below ``data_location``, as the table's location provider would place it.

        ``partition_path`` is the ``name=value/...`` path of the file's partition, empty for an unpartitioned table.
        """
        if not self.object_storage:
            return f"{partition_path}/{file_name}" if partition_path else file_name
        if not self.object_storage_partitioned:
            return f"{_entropy(file_name)}-{file_name}"
        name = f"{partition_path}/{file_name}" if partition_path else file_name
        return f"{_entropy(name)}/{name}"


def _entropy(name: str) -> str:
    bits = format(mmh3.hash(name, signed=False) & ((1 << _HASH_BITS) - 1), f"0{_HASH_BITS}b")
    cut = _ENTROPY_FOLDERS * _ENTROPY_BITS
    folders = [bits[at : at + _ENTROPY_BITS] for at in range(0, cut, _ENTROPY_BITS)]
    return "/".join([*folders, bits[cut:]])
