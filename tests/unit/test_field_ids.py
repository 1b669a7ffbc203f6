"""The catalog's field ids on the stream's schema, and mismatches reported by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from icefloe.errors import SchemaError
from icefloe.schemas.field_ids import field_id, update_field_ids_to_iceberg
from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from icefloe.schemas.normalize import BatchNormalizer
from support.wide_schema import wide_schema_json


def without_ids(field: pa.Field) -> pa.Field:
    arrow_type = field.type
    if pa.types.is_struct(arrow_type):
        arrow_type = pa.struct([without_ids(child) for child in arrow_type])
    elif pa.types.is_list(arrow_type):
        arrow_type = pa.list_(without_ids(arrow_type.value_field))
    elif pa.types.is_map(arrow_type):
        arrow_type = pa.map_(without_ids(arrow_type.key_field), without_ids(arrow_type.item_field))
    return pa.field(field.name, arrow_type, nullable=field.nullable)


def spec_of(*fields: tuple[int, str, bool, Any]) -> dict[str, Any]:
    named = [{"id": i, "name": name, "required": required, "type": type_} for i, name, required, type_ in fields]
    return {"type": "struct", "schema-id": 0, "fields": named}


def test_ids_are_set_on_every_field_of_structs_lists_and_maps() -> None:
    spec = wide_schema_json()
    wanted = arrow_schema_from_iceberg(spec)
    bare = pa.schema([without_ids(field) for field in wanted])
    assert not bare.equals(wanted, check_metadata=True)
    assert update_field_ids_to_iceberg(bare, spec).equals(wanted, check_metadata=True)


def test_the_streams_order_types_and_nullability_stay() -> None:
    schema = pa.schema([pa.field("b", pa.int32(), nullable=False), pa.field("a", pa.large_string())])
    updated = update_field_ids_to_iceberg(schema, spec_of((1, "a", False, "string"), (2, "b", False, "long")))
    assert updated.equals(schema)
    assert [field_id(field) for field in updated] == [2, 1]


def test_a_unique_match_without_case_takes_the_tables_spelling() -> None:
    updated = update_field_ids_to_iceberg(pa.schema([("USERID", pa.int64())]), spec_of((4, "userId", False, "long")))
    assert updated.names == ["userId"]
    assert field_id(updated.field(0)) == 4


def test_an_exact_match_wins_over_one_without_case() -> None:
    schema = pa.schema([("id", pa.int64()), ("ID", pa.int64())])
    updated = update_field_ids_to_iceberg(schema, spec_of((1, "ID", False, "long"), (2, "id", False, "long")))
    assert [field_id(field) for field in updated] == [2, 1]


def test_two_candidates_that_differ_only_in_case_are_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("ID", pa.int64())])
    with pytest.raises(SchemaError, match="ICEFLOE_COLUMN_AMBIGUOUS: Column 'Id'"):
        update_field_ids_to_iceberg(schema, spec_of((1, "Id", False, "long")))


def test_a_renamed_column_is_reported_with_the_name_it_may_have_now() -> None:
    spec = spec_of((1, "customer_id", False, "long"))
    with pytest.raises(SchemaError, match=r"ICEFLOE_COLUMN_UNKNOWN: .*'customer_ids' \(is it 'customer_id'\?\)"):
        update_field_ids_to_iceberg(pa.schema([("customer_ids", pa.int64())]), spec)


def test_a_nested_column_that_the_table_lacks_is_reported_by_its_path() -> None:
    struct = {"type": "struct", "fields": [{"id": 2, "name": "x", "required": False, "type": "int"}]}
    schema = pa.schema([("s", pa.struct([("x", pa.int32()), ("zz", pa.int32())]))])
    with pytest.raises(SchemaError, match=r"ICEFLOE_COLUMN_UNKNOWN: .*'s\.zz'"):
        update_field_ids_to_iceberg(schema, spec_of((1, "s", False, struct)))


def test_a_required_column_that_the_stream_lacks_is_reported_by_name_and_an_optional_one_is_not() -> None:
    schema = pa.schema([("a", pa.int64())])
    assert update_field_ids_to_iceberg(schema, spec_of((1, "a", False, "long"), (2, "b", False, "long"))).names == ["a"]
    with pytest.raises(SchemaError, match="ICEFLOE_COLUMN_MISSING: The table requires 'b'"):
        update_field_ids_to_iceberg(schema, spec_of((1, "a", False, "long"), (2, "b", True, "long")))


def test_a_nested_column_against_a_plain_one_is_refused() -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_TYPE_MISMATCH: Column 'a'"):
        update_field_ids_to_iceberg(pa.schema([("a", pa.list_(pa.int64()))]), spec_of((1, "a", False, "long")))


def test_a_field_without_an_id_is_named() -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_FIELD_ID_MISSING: Field 'a'"):
        field_id(pa.field("a", pa.int64()))


def test_a_batch_normalised_to_the_updated_schema_carries_the_ids() -> None:
    schema = pa.schema([("a", pa.int64())])
    target = update_field_ids_to_iceberg(schema, spec_of((9, "A", False, "long")))
    batch = BatchNormalizer(schema, target).apply(pa.RecordBatch.from_pydict({"a": [1]}, schema=schema))
    assert batch.schema.equals(target, check_metadata=True)
