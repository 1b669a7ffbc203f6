"""How Parquet is written: codec, level, row-group target and the writer settings a table's properties ask for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from icefloe.errors import OptionError

DEFAULT_ROW_GROUP_BYTES = 128 * 1024 * 1024
_PROPERTY_PREFIX = "write.parquet."
_BLOOM_ENABLED_PREFIX = "write.parquet.bloom-filter-enabled.column."
_BLOOM_FPP_PREFIX = "write.parquet.bloom-filter-fpp.column."
# Part of every fingerprint: raise it when the same settings start to make other bytes.
WRITER_VERSION = 1


class ParquetCompression(StrEnum):
    """The codecs a file may use; ``lz4`` and ``lz4_raw`` name the same codec of the Parquet specification."""

    UNCOMPRESSED = "uncompressed"
    SNAPPY = "snappy"
    GZIP = "gzip"
    ZSTD = "zstd"
    LZ4 = "lz4"
    LZ4_RAW = "lz4_raw"

    @property
    def arrow_name(self) -> str:
        """The name PyArrow knows the codec by."""
        return "NONE" if self is ParquetCompression.UNCOMPRESSED else self.value.upper()

    @property
    def level_range(self) -> range | None:
        """Levels that the codec takes, or None where it has none."""
        return {ParquetCompression.GZIP: range(1, 10), ParquetCompression.ZSTD: range(-7, 23)}.get(self)


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """Everything that decides the bytes of a file, apart from its rows and its schema.

    Raises ``OptionError`` for a level that the codec does not take, or a size that is not positive.
    """

    compression: ParquetCompression = ParquetCompression.ZSTD
    compression_level: int | None = None
    row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES
    data_page_bytes: int | None = None
    page_rows: int | None = None
    dictionary_page_bytes: int | None = None
    # Column path -> {"fpp": ...}, as PyArrow takes it.
    bloom_filters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        levels = self.compression.level_range
        if self.compression_level is not None and (levels is None or self.compression_level not in levels):
            takes = f"takes {levels.start} to {levels.stop - 1}" if levels else "has no levels"
            raise OptionError(
                "ICEFLOE_COMPRESSION_LEVEL",
                f"compressionLevel {self.compression_level} does not fit {self.compression}, which {takes}",
            )
        for name in ("row_group_bytes", "data_page_bytes", "page_rows", "dictionary_page_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise OptionError("ICEFLOE_FORMAT_SIZE", f"{name} must be positive, not {value}")

    @staticmethod
    def from_table_properties(
        properties: Mapping[str, str],
        *,
        compression: ParquetCompression | None = None,
        compression_level: int | None = None,
        row_group_bytes: int | None = None,
    ) -> ParquetFormat:
        """Read ``write.parquet.*``; what is given by keyword wins over the table.

        Raises ``OptionError`` naming the property whose value cannot be used.
        """
        codec = compression or _codec(properties.get(_PROPERTY_PREFIX + "compression-codec"))
        level = compression_level
        if level is None and compression is None:
            level = _integer(properties, "compression-level")
        sizes = {
            "row_group_bytes": row_group_bytes or _integer(properties, "row-group-size-bytes"),
            "data_page_bytes": _integer(properties, "page-size-bytes"),
            "page_rows": _integer(properties, "page-row-limit"),
            "dictionary_page_bytes": _integer(properties, "dict-size-bytes"),
        }
        return ParquetFormat(
            compression=codec,
            # A level in the properties may belong to a codec that was configured earlier: codecs without one ignore it.
            compression_level=level if codec.level_range is not None else None,
            bloom_filters=_bloom_filters(properties),
            **{name: value for name, value in sizes.items() if value is not None},
        )

    def writer_options(self, schema: pa.Schema) -> dict[str, Any]:
        """Return the keyword arguments of ``pyarrow.parquet.ParquetWriter`` for this format."""
        options: dict[str, Any] = {
            "compression": self.compression.arrow_name,
            "compression_level": self.compression_level,
            "write_page_index": True,
            "version": "2.6",
        }
        if self.data_page_bytes is not None:
            options["data_page_size"] = self.data_page_bytes
        if self.page_rows is not None:
            options["max_rows_per_page"] = self.page_rows
        if self.dictionary_page_bytes is not None:
            options["dictionary_pagesize_limit"] = self.dictionary_page_bytes
        present = {
            path: dict(value) for path, value in self.bloom_filters.items() if path.split(".")[0] in schema.names
        }
        if present:
            options["bloom_filter_options"] = present
        return options


def writer_digest(format: ParquetFormat, schema: pa.Schema) -> str:
    """Return the SHA-256 (hex) of a schema with its field ids and of the settings: part of a file's fingerprint."""
    digest = hashlib.sha256(f"icefloe-writer-{WRITER_VERSION}\n".encode())
    blooms = sorted((path, sorted(value.items())) for path, value in format.bloom_filters.items())
    settings = (
        format.compression.arrow_name,
        format.compression_level,
        format.row_group_bytes,
        format.data_page_bytes,
        format.page_rows,
        format.dictionary_page_bytes,
        blooms,
    )
    digest.update(repr(settings).encode())
    digest.update(schema.serialize().to_pybytes())
    return digest.hexdigest()


def _codec(value: str | None) -> ParquetCompression:
    if value is None:
        return ParquetCompression.ZSTD
    name = value.strip().lower()
    try:
        return ParquetCompression("uncompressed" if name == "none" else name)
    except ValueError as error:
        choices = ", ".join(ParquetCompression)
        raise OptionError(
            "ICEFLOE_COMPRESSION_UNKNOWN",
            f"write.parquet.compression-codec is {value!r}; Icefloe writes one of: {choices}",
        ) from error


def _integer(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(_PROPERTY_PREFIX + name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise OptionError(
            "ICEFLOE_TABLE_PROPERTY", f"table property {_PROPERTY_PREFIX}{name} is {text!r}, not a whole number"
        ) from error


def _bloom_filters(properties: Mapping[str, str]) -> dict[str, dict[str, float]]:
    filters: dict[str, dict[str, float]] = {}
    for key, value in properties.items():
        if key.startswith(_BLOOM_ENABLED_PREFIX) and value.strip().lower() == "true":
            column = key.removeprefix(_BLOOM_ENABLED_PREFIX)
            fpp = properties.get(_BLOOM_FPP_PREFIX + column, "0.01")
            try:
                filters[column] = {"fpp": float(fpp)}
            except ValueError as error:
                raise OptionError(
                    "ICEFLOE_TABLE_PROPERTY", f"table property {_BLOOM_FPP_PREFIX}{column} is {fpp!r}, not a number"
                ) from error
    return filters
