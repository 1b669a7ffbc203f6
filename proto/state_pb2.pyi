from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TableEnum(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSING_TABLE_TYPE: _ClassVar[TableEnum]
    GLOBAL_KEY_VALUE: _ClassVar[TableEnum]
    EXPIRING_KEYED_TIME_TABLE: _ClassVar[TableEnum]
MISSING_TABLE_TYPE: TableEnum
GLOBAL_KEY_VALUE: TableEnum
EXPIRING_KEYED_TIME_TABLE: TableEnum

class Sealed(_message.Message):
    __slots__ = ("format_version", "kind", "payload_crc32", "payload")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CRC32_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    kind: str
    payload_crc32: int
    payload: bytes
    def __init__(self, format_version: _Optional[int] = ..., kind: _Optional[str] = ..., payload_crc32: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class CheckpointMetadata(_message.Message):
    __slots__ = ("format_version", "job_id", "epoch", "min_epoch", "start_time", "finish_time", "operator_ids", "operators", "base_digest", "nonce", "payload", "payload_version")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MIN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISH_TIME_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_IDS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    job_id: str
    epoch: int
    min_epoch: int
    start_time: int
    finish_time: int
    operator_ids: _containers.RepeatedScalarFieldContainer[str]
    operators: _containers.RepeatedCompositeFieldContainer[OperatorCheckpointMetadata]
    base_digest: str
    nonce: bytes
    payload: bytes
    payload_version: int
    def __init__(self, format_version: _Optional[int] = ..., job_id: _Optional[str] = ..., epoch: _Optional[int] = ..., min_epoch: _Optional[int] = ..., start_time: _Optional[int] = ..., finish_time: _Optional[int] = ..., operator_ids: _Optional[_Iterable[str]] = ..., operators: _Optional[_Iterable[_Union[OperatorCheckpointMetadata, _Mapping]]] = ..., base_digest: _Optional[str] = ..., nonce: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., payload_version: _Optional[int] = ...) -> None: ...

class OperatorCheckpointMetadata(_message.Message):
    __slots__ = ("format_version", "operator_metadata", "start_time", "finish_time", "subtask", "table_configs", "referenced_names")
    class TableConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TableConfig
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TableConfig, _Mapping]] = ...) -> None: ...
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_METADATA_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISH_TIME_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    TABLE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    REFERENCED_NAMES_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    operator_metadata: OperatorMetadata
    start_time: int
    finish_time: int
    subtask: SubtaskCheckpointMetadata
    table_configs: _containers.MessageMap[str, TableConfig]
    referenced_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, format_version: _Optional[int] = ..., operator_metadata: _Optional[_Union[OperatorMetadata, _Mapping]] = ..., start_time: _Optional[int] = ..., finish_time: _Optional[int] = ..., subtask: _Optional[_Union[SubtaskCheckpointMetadata, _Mapping]] = ..., table_configs: _Optional[_Mapping[str, TableConfig]] = ..., referenced_names: _Optional[_Iterable[str]] = ...) -> None: ...

class OperatorMetadata(_message.Message):
    __slots__ = ("job_id", "operator_id", "epoch", "subtask_index", "owner_subtask", "parallelism", "watermark", "attempt_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    OWNER_SUBTASK_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    operator_id: str
    epoch: int
    subtask_index: int
    owner_subtask: int
    parallelism: int
    watermark: int
    attempt_id: str
    def __init__(self, job_id: _Optional[str] = ..., operator_id: _Optional[str] = ..., epoch: _Optional[int] = ..., subtask_index: _Optional[int] = ..., owner_subtask: _Optional[int] = ..., parallelism: _Optional[int] = ..., watermark: _Optional[int] = ..., attempt_id: _Optional[str] = ...) -> None: ...

class SubtaskCheckpointMetadata(_message.Message):
    __slots__ = ("subtask_index", "start_time", "finish_time", "watermark", "bytes", "table_metadata", "then_stop")
    class TableMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TableSubtaskCheckpointMetadata
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TableSubtaskCheckpointMetadata, _Mapping]] = ...) -> None: ...
    SUBTASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISH_TIME_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLE_METADATA_FIELD_NUMBER: _ClassVar[int]
    THEN_STOP_FIELD_NUMBER: _ClassVar[int]
    subtask_index: int
    start_time: int
    finish_time: int
    watermark: int
    bytes: int
    table_metadata: _containers.MessageMap[str, TableSubtaskCheckpointMetadata]
    then_stop: bool
    def __init__(self, subtask_index: _Optional[int] = ..., start_time: _Optional[int] = ..., finish_time: _Optional[int] = ..., watermark: _Optional[int] = ..., bytes: _Optional[int] = ..., table_metadata: _Optional[_Mapping[str, TableSubtaskCheckpointMetadata]] = ..., then_stop: bool = ...) -> None: ...

class TableConfig(_message.Message):
    __slots__ = ("table_type", "config", "state_version")
    TABLE_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    table_type: TableEnum
    config: bytes
    state_version: int
    def __init__(self, table_type: _Optional[_Union[TableEnum, str]] = ..., config: _Optional[bytes] = ..., state_version: _Optional[int] = ...) -> None: ...

class TableCheckpointMetadata(_message.Message):
    __slots__ = ("table_type", "data")
    TABLE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    table_type: TableEnum
    data: bytes
    def __init__(self, table_type: _Optional[_Union[TableEnum, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class TableSubtaskCheckpointMetadata(_message.Message):
    __slots__ = ("subtask_index", "table_type", "data")
    SUBTASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    TABLE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    subtask_index: int
    table_type: TableEnum
    data: bytes
    def __init__(self, subtask_index: _Optional[int] = ..., table_type: _Optional[_Union[TableEnum, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class GlobalKeyedTableConfig(_message.Message):
    __slots__ = ("table_name", "description", "uses_two_phase_commit")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    USES_TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    table_name: str
    description: str
    uses_two_phase_commit: bool
    def __init__(self, table_name: _Optional[str] = ..., description: _Optional[str] = ..., uses_two_phase_commit: bool = ...) -> None: ...

class GlobalKeyedFile(_message.Message):
    __slots__ = ("file", "epoch", "subtask_index", "bytes", "rows", "crc32")
    FILE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    file: str
    epoch: int
    subtask_index: int
    bytes: int
    rows: int
    crc32: int
    def __init__(self, file: _Optional[str] = ..., epoch: _Optional[int] = ..., subtask_index: _Optional[int] = ..., bytes: _Optional[int] = ..., rows: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class GlobalKeyedTableSubtaskCheckpointMetadata(_message.Message):
    __slots__ = ("subtask_index", "files", "commit_data", "commit_data_version")
    SUBTASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_DATA_FIELD_NUMBER: _ClassVar[int]
    COMMIT_DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    subtask_index: int
    files: _containers.RepeatedCompositeFieldContainer[GlobalKeyedFile]
    commit_data: bytes
    commit_data_version: int
    def __init__(self, subtask_index: _Optional[int] = ..., files: _Optional[_Iterable[_Union[GlobalKeyedFile, _Mapping]]] = ..., commit_data: _Optional[bytes] = ..., commit_data_version: _Optional[int] = ...) -> None: ...

class GlobalKeyedTableTaskCheckpointMetadata(_message.Message):
    __slots__ = ("files", "commit_data_by_subtask", "commit_data_version")
    class CommitDataBySubtaskEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    FILES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_DATA_BY_SUBTASK_FIELD_NUMBER: _ClassVar[int]
    COMMIT_DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[GlobalKeyedFile]
    commit_data_by_subtask: _containers.ScalarMap[int, bytes]
    commit_data_version: int
    def __init__(self, files: _Optional[_Iterable[_Union[GlobalKeyedFile, _Mapping]]] = ..., commit_data_by_subtask: _Optional[_Mapping[int, bytes]] = ..., commit_data_version: _Optional[int] = ...) -> None: ...

class ExpiringKeyedTimeTableConfig(_message.Message):
    __slots__ = ("table_name", "description", "retention", "generational", "time_column", "key_column", "arrow_schema")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    GENERATIONAL_FIELD_NUMBER: _ClassVar[int]
    TIME_COLUMN_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMN_FIELD_NUMBER: _ClassVar[int]
    ARROW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table_name: str
    description: str
    retention: int
    generational: bool
    time_column: str
    key_column: str
    arrow_schema: bytes
    def __init__(self, table_name: _Optional[str] = ..., description: _Optional[str] = ..., retention: _Optional[int] = ..., generational: bool = ..., time_column: _Optional[str] = ..., key_column: _Optional[str] = ..., arrow_schema: _Optional[bytes] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("key", "min_time", "max_time", "rows")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MIN_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_TIME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    key: int
    min_time: int
    max_time: int
    rows: int
    def __init__(self, key: _Optional[int] = ..., min_time: _Optional[int] = ..., max_time: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ParquetTimeFile(_message.Message):
    __slots__ = ("file", "epoch", "min_routing_key", "max_routing_key", "min_time", "max_time", "generation", "bytes", "rows", "crc32", "keys")
    FILE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MIN_ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    MAX_ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    MIN_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_TIME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    file: str
    epoch: int
    min_routing_key: int
    max_routing_key: int
    min_time: int
    max_time: int
    generation: int
    bytes: int
    rows: int
    crc32: int
    keys: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, file: _Optional[str] = ..., epoch: _Optional[int] = ..., min_routing_key: _Optional[int] = ..., max_routing_key: _Optional[int] = ..., min_time: _Optional[int] = ..., max_time: _Optional[int] = ..., generation: _Optional[int] = ..., bytes: _Optional[int] = ..., rows: _Optional[int] = ..., crc32: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

class ExpiringKeyedTimeSubtaskCheckpointMetadata(_message.Message):
    __slots__ = ("subtask_index", "watermark", "files")
    SUBTASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    subtask_index: int
    watermark: int
    files: _containers.RepeatedCompositeFieldContainer[ParquetTimeFile]
    def __init__(self, subtask_index: _Optional[int] = ..., watermark: _Optional[int] = ..., files: _Optional[_Iterable[_Union[ParquetTimeFile, _Mapping]]] = ...) -> None: ...

class ExpiringKeyedTimeTableCheckpointMetadata(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[ParquetTimeFile]
    def __init__(self, files: _Optional[_Iterable[_Union[ParquetTimeFile, _Mapping]]] = ...) -> None: ...
