"""The options of ``format("icefloe")``: parsed once, at the edge, into one frozen value."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from icefloe.connector.option_values import (
    Parser,
    one_of,
    parse_count,
    parse_duration,
    parse_flag,
    parse_level,
    parse_size,
    parse_text,
)
from icefloe.errors import OptionError


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its key as users write it, how it is read, and what ``docs/options.md`` says of it."""

    key: str
    parse: Parser[Any]
    default: Any
    shown_default: str
    about: str
    # What a restart with another value does.
    on_restart: str
    attribute: str


def _option(key: str, parse: Parser[Any], default: Any, shown: str, about: str, on_restart: str) -> Option:
    attribute = "".join("_" + c.lower() if c.isupper() else c for c in key)
    return Option(key, parse, default, shown, about, on_restart, attribute)


FIXED = "refused: a job keeps its target"
FREE = "may change"
ROLLS = "may change: files in flight are rolled first"

OPTIONS: tuple[Option, ...] = (
    _option(
        "table", parse_text, None, "", "Iceberg table `namespace.table`. One of `table` and `path` is required.", FIXED
    ),
    _option(
        "path",
        parse_text,
        None,
        "",
        "Directory or `s3://` prefix for plain Parquet files in Hive-style folders.",
        FIXED,
    ),
    _option(
        "warehouse",
        parse_text,
        None,
        "",
        "Local folder of an embedded SQLite catalog, `<warehouse>/catalog.db`, called `icefloe`.",
        "may change, as long as it leads to the same table",
    ),
    _option(
        "catalog",
        parse_text,
        None,
        "PyIceberg's configuration",
        "Name of a PyIceberg catalog. `catalog.*` gives its properties, such as `catalog.uri`.",
        "may change, as long as it leads to the same table",
    ),
    _option(
        "checkpointLocation",
        parse_text,
        None,
        "",
        "Spark's checkpoint. Give it with `.option`, so that the sink sees it too.",
        "a new location is a new job",
    ),
    _option(
        "stateLocation",
        parse_text,
        None,
        "`<checkpointLocation>/icefloe`",
        "Where the sink keeps its state: a local folder or an `s3://` prefix. With `visibility=roll` it holds rows.",
        "move the folder with it; state that is not found is refused",
    ),
    _option(
        "createTable",
        parse_flag,
        True,
        "`true`",
        "Create namespace and table from the stream's schema if missing.",
        FREE,
    ),
    _option(
        "partitionBy",
        parse_text,
        None,
        "",
        "`day(ts), bucket(16, user_id), truncate(4, name), region`: at creation of a table; plain columns for `path`.",
        "`path`: refused; `table`: the table's own spec is used",
    ),
    _option(
        "mergeSchema",
        parse_flag,
        False,
        "`false`",
        "Add columns of the stream that the table lacks, widen types.",
        FREE,
    ),
    _option(
        "visibility",
        one_of("batch", "roll"),
        "batch",
        "`batch`",
        "`batch`: rows are readable after each micro-batch. `roll`: when their file reaches its size or age.",
        FREE,
    ),
    _option(
        "rollFileSize",
        parse_size,
        None,
        "the table's target, else `512MB`",
        "A file is finished when it reaches this size.",
        FREE,
    ),
    _option(
        "rollInterval", parse_duration, timedelta(minutes=15), "`15m`", "`roll`: a file is finished at this age.", FREE
    ),
    _option(
        "rollInactivity",
        parse_duration,
        timedelta(minutes=5),
        "`5m`",
        "`roll`: a file that got no row for this long is finished.",
        FREE,
    ),
    _option(
        "rollWatermark",
        parse_flag,
        False,
        "`false`",
        "`roll`: a file is finished when the watermark has passed its latest event time.",
        FREE,
    ),
    _option(
        "rowGroupSize",
        parse_size,
        None,
        "table property, else `128MB`",
        "Encoded size of a row group.",
        ROLLS,
    ),
    _option(
        "compression",
        one_of("uncompressed", "snappy", "gzip", "zstd", "lz4", "lz4_raw"),
        None,
        "table property, else `zstd`",
        "`uncompressed`, `snappy`, `gzip`, `zstd`, `lz4` or `lz4_raw`.",
        ROLLS,
    ),
    _option("compressionLevel", parse_level, None, "the codec's", "Level, where the codec has one.", ROLLS),
    _option("partSize", parse_size, 16 << 20, "`16MB`", "Size of the parts of an upload to S3; 5 MB at least.", FREE),
    _option(
        "maxOpenFiles",
        parse_count,
        100,
        "`100`",
        "Files in memory per task. Above it the one written longest ago is closed (`batch`) or parked in state "
        "(`roll`).",
        FREE,
    ),
    _option(
        "memoryBudget",
        parse_size,
        512 << 20,
        "`512MB`",
        "Bytes of rows buffered per task. Above it the largest buffer is encoded.",
        FREE,
    ),
    _option("filePrefix", parse_text, "", "", "Put in front of every data file's name.", FREE),
    _option(
        "eventTimeColumn",
        parse_text,
        None,
        "the column with a Spark watermark",
        "Event-time column, for `rollWatermark` and `dropEventTime`.",
        ROLLS,
    ),
    _option("dropEventTime", parse_flag, False, "`false`", "Leave the event-time column out of the files.", ROLLS),
    _option("keepEpochs", parse_count, 10, "`10`", "Records of so many epochs are kept in state.", FREE),
    _option(
        "keepSnapshots",
        parse_count,
        None,
        "off",
        "Expire this job's own snapshots beyond so many. Other writers' snapshots, tags and branches are left alone.",
        FREE,
    ),
    _option(
        "sharedDisk",
        parse_flag,
        False,
        "`false`",
        "Says that a `file:` location is the same disk on every machine; required on a master that is not `local`.",
        FREE,
    ),
)

# Groups of options by prefix: what follows the prefix is passed on.
PREFIXES: Mapping[str, str] = {
    "catalog.": "Properties of the PyIceberg catalog, such as `catalog.uri`, `catalog.type`, `catalog.warehouse`.",
    "s3.": "`s3.endpoint`, `s3.region`, `s3.access-key-id`, `s3.secret-access-key`, `s3.session-token`; "
    "from the environment where they are missing.",
    "tableProperty.": "Properties of a table that the sink creates.",
}
S3_KEYS = frozenset({"endpoint", "region", "access-key-id", "secret-access-key", "session-token"})
# What Spark itself adds to a writer's options.
_SPARK_KEYS = frozenset({"queryname"})
# Everything else under `s3.` and `catalog.` may be a secret and never reaches state.
_PUBLIC_KEYS = frozenset(
    {"s3.endpoint", "s3.region", "catalog.type", "catalog.warehouse", "catalog.s3.endpoint", "catalog.s3.region"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """All options of one writer, checked. ``repr`` shows nothing that could be a secret."""

    table: str | None
    path: str | None
    warehouse: str | None
    catalog: str | None
    checkpoint_location: str | None
    state_location: str | None
    create_table: bool
    partition_by: str | None
    merge_schema: bool
    visibility: str
    roll_file_size: int | None
    roll_interval: timedelta
    roll_inactivity: timedelta
    roll_watermark: bool
    row_group_size: int | None
    compression: str | None
    compression_level: int | None
    part_size: int
    max_open_files: int
    memory_budget: int
    file_prefix: str
    event_time_column: str | None
    drop_event_time: bool
    keep_epochs: int
    keep_snapshots: int | None
    shared_disk: bool
    catalog_properties: Mapping[str, str] = field(repr=False)
    s3: Mapping[str, str] = field(repr=False)
    table_properties: Mapping[str, str]
    # The options as given, less those that may be secret: what a record keeps.
    public: Mapping[str, str]

    @property
    def rolls_each_batch(self) -> bool:
        """Whether every file is finished at the end of its micro-batch."""
        return self.visibility == "batch"

    @property
    def s3_options(self) -> dict[str, str]:
        """The ``s3.*`` options with their prefix, as storage takes them."""
        return {f"s3.{key}": value for key, value in self.s3.items()}


def absolute_url(location: str) -> str:
    """Return a location that means the same in every process: a URL as it is, a local path made absolute.

    A leading ``file:`` is taken off; only the driver may resolve a relative path.
    """
    scheme = urlsplit(location).scheme
    if scheme == "file":
        path = urlsplit(location).path
    elif len(scheme) > 1:
        return location.rstrip("/")
    else:
        path = location
    return os.path.abspath(os.path.expanduser(path))


def parse_options(given: Mapping[str, str], *, streaming: bool = True) -> SinkOptions:
    """Check all options and return them as one value.

    Keys are case-insensitive. Raises ``OptionError`` for an unknown key (naming the nearest), a bad value, or a
    combination that makes no sense.
    """
    by_key = {option.key.lower(): option for option in OPTIONS}
    values: dict[str, Any] = {option.attribute: option.default for option in OPTIONS}
    groups: dict[str, dict[str, str]] = {prefix: {} for prefix in PREFIXES}
    for key, text in given.items():
        lowered = key.lower()
        prefix = next((p for p in PREFIXES if lowered.startswith(p.lower())), None)
        if prefix is not None:
            groups[prefix][lowered[len(prefix) :]] = text
        elif lowered in by_key:
            option = by_key[lowered]
            values[option.attribute] = option.parse(option.key, text)
        elif lowered not in _SPARK_KEYS:
            raise _unknown(key, [*(option.key for option in OPTIONS), *(f"s3.{name}" for name in sorted(S3_KEYS))])
    for name in groups["s3."]:
        if name not in S3_KEYS:
            raise _unknown(f"s3.{name}", [f"s3.{known}" for known in sorted(S3_KEYS)])
    for location in ("path", "warehouse", "checkpoint_location", "state_location"):
        if values[location] is not None:
            values[location] = absolute_url(values[location])
    if values["state_location"] is None and values["checkpoint_location"] is not None:
        values["state_location"] = values["checkpoint_location"] + "/icefloe"
    options = SinkOptions(
        **values,
        catalog_properties=groups["catalog."],
        s3=groups["s3."],
        table_properties=groups["tableProperty."],
        public=_public(given),
    )
    _check(options, streaming=streaming)
    return options


def _unknown(key: str, known: list[str]) -> OptionError:
    near = difflib.get_close_matches(key.lower(), [name.lower() for name in known], n=1, cutoff=0.5)
    meant = next((name for name in known if near and name.lower() == near[0]), None)
    advice = f"did you mean {meant!r}?" if meant else "docs/options.md lists all"
    return OptionError("ICEFLOE_OPTION_UNKNOWN", f"there is no option {key!r}: {advice}")


def _public(given: Mapping[str, str]) -> dict[str, str]:
    names = {option.key.lower(): option.key for option in OPTIONS}
    return {
        names.get(key.lower(), key.lower()): value
        for key, value in given.items()
        if key.lower() in names or key.lower().startswith("tableproperty.") or _is_public(key.lower(), value)
    }


def _is_public(key: str, value: str) -> bool:
    # A URI may carry a password before its host or a token in its query; one that can carry neither is kept.
    return key in _PUBLIC_KEYS or (key == "catalog.uri" and "@" not in value and "?" not in value)


def _check(options: SinkOptions, *, streaming: bool) -> None:
    if options.table is None and options.path is None:
        raise OptionError(
            "ICEFLOE_OPTION_NO_TARGET",
            'no target: set .option("table", "namespace.name") or .option("path", "..."). '
            "Spark drops .partitionBy() and the name in .toTable() on the way to a Python sink: "
            "use the options partitionBy and table",
        )
    if options.table is not None and options.path is not None:
        raise OptionError(
            "ICEFLOE_OPTION_TWO_TARGETS",
            f"both table ({options.table!r}) and path ({options.path!r}) are set: keep one of them",
        )
    if options.path is not None:
        for name in ("warehouse", "catalog", "keep_snapshots"):
            if getattr(options, name) is not None:
                key = next(option.key for option in OPTIONS if option.attribute == name)
                raise OptionError("ICEFLOE_OPTION_CONFLICT", f"option {key!r} is for tables, and the target is a path")
    if options.table is not None and "." not in options.table:
        raise OptionError(
            "ICEFLOE_OPTION_VALUE",
            f"option 'table' is {options.table!r}, but must be namespace.name, such as db.events",
        )
    if options.warehouse is not None and options.catalog is not None:
        raise OptionError("ICEFLOE_OPTION_CONFLICT", "both warehouse and catalog are set: keep one of them")
    if options.part_size < 5 << 20:
        raise OptionError(
            "ICEFLOE_OPTION_VALUE", f"option 'partSize' is {options.part_size} bytes, S3 wants 5MB at least"
        )
    if options.drop_event_time and options.roll_watermark:
        raise OptionError(
            "ICEFLOE_OPTION_CONFLICT",
            "rollWatermark compares the event times in a file with the watermark, and dropEventTime leaves them out of "
            "it: keep one of them",
        )
    if streaming and options.state_location is None:
        raise OptionError(
            "ICEFLOE_OPTION_NO_STATE",
            'no place for state: set .option("checkpointLocation", ...) on the writer (a default from Spark\'s '
            "configuration is not visible to a sink), or stateLocation",
        )


def options_page() -> str:
    """Return ``docs/options.md``: every option with its default and what a restart may change."""
    lines = [
        "# Options",
        "",
        "Generated by `make docs` from the code. Keys are case-insensitive. Sizes: `KB`, `MB`, `GB` (powers of 1024),",
        "a bare number is bytes. Times: `ms`, `s`, `m`, `h`, `d`.",
        "An unknown option is an error that names the nearest.",
        "",
        "| option | default | what it does | on a restart with another value |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{o.key}` | {o.shown_default} | {o.about} | {o.on_restart} |" for o in OPTIONS]
    lines += [f"| `{prefix}*` | | {about} | {FREE} |" for prefix, about in PREFIXES.items()]
    return "\n".join(lines) + "\n"
