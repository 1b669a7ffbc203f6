from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecordKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECORD_KIND_UNSPECIFIED: _ClassVar[RecordKind]
    RECORD_KIND_BATCH: _ClassVar[RecordKind]
    RECORD_KIND_FINISH: _ClassVar[RecordKind]
RECORD_KIND_UNSPECIFIED: RecordKind
RECORD_KIND_BATCH: RecordKind
RECORD_KIND_FINISH: RecordKind

class JobMetadata(_message.Message):
    __slots__ = ("format_version", "job_id", "target", "nonce", "first_batch_id", "created_us")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    job_id: str
    target: Target
    nonce: bytes
    first_batch_id: int
    created_us: int
    def __init__(self, format_version: _Optional[int] = ..., job_id: _Optional[str] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., nonce: _Optional[bytes] = ..., first_batch_id: _Optional[int] = ..., created_us: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("table", "path", "table_uuid", "partition_columns")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TABLE_UUID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    table: str
    path: str
    table_uuid: str
    partition_columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., path: _Optional[str] = ..., table_uuid: _Optional[str] = ..., partition_columns: _Optional[_Iterable[str]] = ...) -> None: ...

class SinkRecord(_message.Message):
    __slots__ = ("kind", "batch_id", "offsets_digest", "input_rows", "expected_ledger", "source_offsets", "metrics", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INPUT_ROWS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LEDGER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    kind: RecordKind
    batch_id: int
    offsets_digest: str
    input_rows: int
    expected_ledger: str
    source_offsets: str
    metrics: EpochMetrics
    options: _containers.ScalarMap[str, str]
    def __init__(self, kind: _Optional[_Union[RecordKind, str]] = ..., batch_id: _Optional[int] = ..., offsets_digest: _Optional[str] = ..., input_rows: _Optional[int] = ..., expected_ledger: _Optional[str] = ..., source_offsets: _Optional[str] = ..., metrics: _Optional[_Union[EpochMetrics, _Mapping]] = ..., options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PartitionValue(_message.Message):
    __slots__ = ("field_id", "name", "boolean", "integer", "floating", "text", "binary", "decimal", "shown", "scale")
    FIELD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    FLOATING_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    field_id: int
    name: str
    boolean: bool
    integer: int
    floating: float
    text: str
    binary: bytes
    decimal: bytes
    shown: str
    scale: int
    def __init__(self, field_id: _Optional[int] = ..., name: _Optional[str] = ..., boolean: bool = ..., integer: _Optional[int] = ..., floating: _Optional[float] = ..., text: _Optional[str] = ..., binary: _Optional[bytes] = ..., decimal: _Optional[bytes] = ..., shown: _Optional[str] = ..., scale: _Optional[int] = ...) -> None: ...

class PartitionKey(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[PartitionValue]
    def __init__(self, values: _Optional[_Iterable[_Union[PartitionValue, _Mapping]]] = ...) -> None: ...

class Fingerprint(_message.Message):
    __slots__ = ("schema_id", "spec_id", "writer_digest", "format_version")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    spec_id: int
    writer_digest: str
    format_version: int
    def __init__(self, schema_id: _Optional[int] = ..., spec_id: _Optional[int] = ..., writer_digest: _Optional[str] = ..., format_version: _Optional[int] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("name", "length_bytes", "crc32")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    name: str
    length_bytes: int
    crc32: int
    def __init__(self, name: _Optional[str] = ..., length_bytes: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class InFlightFile(_message.Message):
    __slots__ = ("format_version", "file_id", "partition", "fingerprint", "segments", "position_bytes", "encoded_rows", "encoded_arrow_bytes", "pending_key", "pending_from", "pending_rows", "pending_arrow_bytes", "began_us", "last_write_us", "nan_counts", "representative_timestamp_us", "max_event_time_us", "footer_crc32", "measured_arrow_bytes", "measured_encoded_bytes")
    class NanCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENCODED_ROWS_FIELD_NUMBER: _ClassVar[int]
    ENCODED_ARROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    PENDING_KEY_FIELD_NUMBER: _ClassVar[int]
    PENDING_FROM_FIELD_NUMBER: _ClassVar[int]
    PENDING_ROWS_FIELD_NUMBER: _ClassVar[int]
    PENDING_ARROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEGAN_US_FIELD_NUMBER: _ClassVar[int]
    LAST_WRITE_US_FIELD_NUMBER: _ClassVar[int]
    NAN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    REPRESENTATIVE_TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENT_TIME_US_FIELD_NUMBER: _ClassVar[int]
    FOOTER_CRC32_FIELD_NUMBER: _ClassVar[int]
    MEASURED_ARROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEASURED_ENCODED_BYTES_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    file_id: str
    partition: PartitionKey
    fingerprint: Fingerprint
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    position_bytes: int
    encoded_rows: int
    encoded_arrow_bytes: int
    pending_key: int
    pending_from: int
    pending_rows: int
    pending_arrow_bytes: int
    began_us: int
    last_write_us: int
    nan_counts: _containers.ScalarMap[int, int]
    representative_timestamp_us: int
    max_event_time_us: int
    footer_crc32: int
    measured_arrow_bytes: int
    measured_encoded_bytes: int
    def __init__(self, format_version: _Optional[int] = ..., file_id: _Optional[str] = ..., partition: _Optional[_Union[PartitionKey, _Mapping]] = ..., fingerprint: _Optional[_Union[Fingerprint, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., position_bytes: _Optional[int] = ..., encoded_rows: _Optional[int] = ..., encoded_arrow_bytes: _Optional[int] = ..., pending_key: _Optional[int] = ..., pending_from: _Optional[int] = ..., pending_rows: _Optional[int] = ..., pending_arrow_bytes: _Optional[int] = ..., began_us: _Optional[int] = ..., last_write_us: _Optional[int] = ..., nan_counts: _Optional[_Mapping[int, int]] = ..., representative_timestamp_us: _Optional[int] = ..., max_event_time_us: _Optional[int] = ..., footer_crc32: _Optional[int] = ..., measured_arrow_bytes: _Optional[int] = ..., measured_encoded_bytes: _Optional[int] = ...) -> None: ...

class WriterDescription(_message.Message):
    __slots__ = ("arrow_schema", "timestamp_index", "compression", "compression_level", "row_group_bytes", "properties", "schema_id", "spec_id", "format_version")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARROW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUP_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    arrow_schema: bytes
    timestamp_index: int
    compression: str
    compression_level: int
    row_group_bytes: int
    properties: _containers.ScalarMap[str, str]
    schema_id: int
    spec_id: int
    format_version: int
    def __init__(self, arrow_schema: _Optional[bytes] = ..., timestamp_index: _Optional[int] = ..., compression: _Optional[str] = ..., compression_level: _Optional[int] = ..., row_group_bytes: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., schema_id: _Optional[int] = ..., spec_id: _Optional[int] = ..., format_version: _Optional[int] = ...) -> None: ...

class RecoveryEntry(_message.Message):
    __slots__ = ("file", "footer", "writer")
    FILE_FIELD_NUMBER: _ClassVar[int]
    FOOTER_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    file: InFlightFile
    footer: bytes
    writer: WriterDescription
    def __init__(self, file: _Optional[_Union[InFlightFile, _Mapping]] = ..., footer: _Optional[bytes] = ..., writer: _Optional[_Union[WriterDescription, _Mapping]] = ...) -> None: ...

class IcebergFileMetadata(_message.Message):
    __slots__ = ("row_count", "split_offsets", "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    class ColumnSizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class ValueCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class NullValueCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class NanValueCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class LowerBoundsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    class UpperBoundsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COLUMN_SIZES_FIELD_NUMBER: _ClassVar[int]
    VALUE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    NAN_VALUE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    row_count: int
    split_offsets: _containers.RepeatedScalarFieldContainer[int]
    column_sizes: _containers.ScalarMap[int, int]
    value_counts: _containers.ScalarMap[int, int]
    null_value_counts: _containers.ScalarMap[int, int]
    nan_value_counts: _containers.ScalarMap[int, int]
    lower_bounds: _containers.ScalarMap[int, bytes]
    upper_bounds: _containers.ScalarMap[int, bytes]
    def __init__(self, row_count: _Optional[int] = ..., split_offsets: _Optional[_Iterable[int]] = ..., column_sizes: _Optional[_Mapping[int, int]] = ..., value_counts: _Optional[_Mapping[int, int]] = ..., null_value_counts: _Optional[_Mapping[int, int]] = ..., nan_value_counts: _Optional[_Mapping[int, int]] = ..., lower_bounds: _Optional[_Mapping[int, bytes]] = ..., upper_bounds: _Optional[_Mapping[int, bytes]] = ...) -> None: ...

class UploadPart(_message.Message):
    __slots__ = ("number", "etag", "length_bytes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    number: int
    etag: str
    length_bytes: int
    def __init__(self, number: _Optional[int] = ..., etag: _Optional[str] = ..., length_bytes: _Optional[int] = ...) -> None: ...

class DataFile(_message.Message):
    __slots__ = ("name", "length_bytes", "rows", "attempt_id", "partition", "fingerprint", "metadata", "row_groups", "began_us", "upload_id", "parts", "in_progress", "sources", "location")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    BEGAN_US_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    length_bytes: int
    rows: int
    attempt_id: str
    partition: PartitionKey
    fingerprint: Fingerprint
    metadata: IcebergFileMetadata
    row_groups: int
    began_us: int
    upload_id: str
    parts: _containers.RepeatedCompositeFieldContainer[UploadPart]
    in_progress: str
    sources: _containers.RepeatedCompositeFieldContainer[Segment]
    location: str
    def __init__(self, name: _Optional[str] = ..., length_bytes: _Optional[int] = ..., rows: _Optional[int] = ..., attempt_id: _Optional[str] = ..., partition: _Optional[_Union[PartitionKey, _Mapping]] = ..., fingerprint: _Optional[_Union[Fingerprint, _Mapping]] = ..., metadata: _Optional[_Union[IcebergFileMetadata, _Mapping]] = ..., row_groups: _Optional[int] = ..., began_us: _Optional[int] = ..., upload_id: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[UploadPart, _Mapping]]] = ..., in_progress: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., location: _Optional[str] = ...) -> None: ...

class PreCommits(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[DataFile]
    def __init__(self, files: _Optional[_Iterable[_Union[DataFile, _Mapping]]] = ...) -> None: ...

class EpochMetrics(_message.Message):
    __slots__ = ("rows", "arrow_bytes", "encoded_bytes", "files_rolled", "files_in_flight", "rows_in_flight", "bytes_in_flight", "parts", "row_groups", "state_bytes", "read_us", "encode_us", "upload_us", "state_us", "tasks")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENCODED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_ROLLED_FIELD_NUMBER: _ClassVar[int]
    FILES_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ROWS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_US_FIELD_NUMBER: _ClassVar[int]
    ENCODE_US_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_US_FIELD_NUMBER: _ClassVar[int]
    STATE_US_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    arrow_bytes: int
    encoded_bytes: int
    files_rolled: int
    files_in_flight: int
    rows_in_flight: int
    bytes_in_flight: int
    parts: int
    row_groups: int
    state_bytes: int
    read_us: int
    encode_us: int
    upload_us: int
    state_us: int
    tasks: int
    def __init__(self, rows: _Optional[int] = ..., arrow_bytes: _Optional[int] = ..., encoded_bytes: _Optional[int] = ..., files_rolled: _Optional[int] = ..., files_in_flight: _Optional[int] = ..., rows_in_flight: _Optional[int] = ..., bytes_in_flight: _Optional[int] = ..., parts: _Optional[int] = ..., row_groups: _Optional[int] = ..., state_bytes: _Optional[int] = ..., read_us: _Optional[int] = ..., encode_us: _Optional[int] = ..., upload_us: _Optional[int] = ..., state_us: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class PublishLog(_message.Message):
    __slots__ = ("format_version", "epoch", "published_us", "record_us", "files_us", "catalog_us", "clean_up_us", "conflicts", "retries", "files", "rows", "snapshot_id")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_US_FIELD_NUMBER: _ClassVar[int]
    RECORD_US_FIELD_NUMBER: _ClassVar[int]
    FILES_US_FIELD_NUMBER: _ClassVar[int]
    CATALOG_US_FIELD_NUMBER: _ClassVar[int]
    CLEAN_UP_US_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    epoch: int
    published_us: int
    record_us: int
    files_us: int
    catalog_us: int
    clean_up_us: int
    conflicts: int
    retries: int
    files: int
    rows: int
    snapshot_id: int
    def __init__(self, format_version: _Optional[int] = ..., epoch: _Optional[int] = ..., published_us: _Optional[int] = ..., record_us: _Optional[int] = ..., files_us: _Optional[int] = ..., catalog_us: _Optional[int] = ..., clean_up_us: _Optional[int] = ..., conflicts: _Optional[int] = ..., retries: _Optional[int] = ..., files: _Optional[int] = ..., rows: _Optional[int] = ..., snapshot_id: _Optional[int] = ...) -> None: ...
