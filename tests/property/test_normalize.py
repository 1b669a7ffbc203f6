"""Whatever Arrow types carry the same rows, normalising gives the same batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icefloe.schemas.iceberg_schema import arrow_schema_from_iceberg
from icefloe.schemas.normalize import check_schemas_fit, normalize_batch_to_schema
from support.wide_schema import rows_of, wide_schema_json

TARGET = arrow_schema_from_iceberg(wide_schema_json())
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "+05:30"])


@st.composite
def carriers(draw: st.DrawFn, arrow_type: pa.DataType) -> pa.DataType:
    """Another type that holds the same values, as engines differ in what they send."""
    if pa.types.is_struct(arrow_type):
        order = draw(st.permutations(list(arrow_type)))
        return pa.struct([pa.field(field.name, draw(carriers(field.type))) for field in order])
    if pa.types.is_list(arrow_type):
        build = draw(st.sampled_from([pa.list_, pa.large_list]))
        return build(pa.field("item", draw(carriers(arrow_type.value_type))))
    if pa.types.is_map(arrow_type):
        return pa.map_(draw(carriers(arrow_type.key_type)), draw(carriers(arrow_type.item_type)))
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz:
        return pa.timestamp("us", draw(ZONES))
    if arrow_type == pa.string():
        return draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    if arrow_type == pa.binary():
        return draw(st.sampled_from([pa.binary(), pa.large_binary()]))
    return arrow_type


@st.composite
def source_schemas(draw: st.DrawFn) -> pa.Schema:
    fields = []
    for field in draw(st.permutations(list(TARGET))):
        arrow_type = draw(carriers(field.type))
        if arrow_type == pa.string() and draw(st.booleans()):
            arrow_type = pa.dictionary(pa.int32(), pa.string())
        fields.append(pa.field(draw(st.sampled_from([field.name, field.name.upper()])), arrow_type))
    return pa.schema(fields)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows_of(TARGET, max_size=6), source=source_schemas(), start=st.integers(0, 3))
def test_the_same_rows_in_other_types_order_and_case_give_the_same_batch(
    rows: list[dict[str, Any]], source: pa.Schema, start: int
) -> None:
    names = {field.name.upper(): field.name for field in TARGET}
    renamed = [{field.name: row[names[field.name.upper()]] for field in source} for row in rows]
    check_schemas_fit(source, TARGET)
    result = normalize_batch_to_schema(pa.RecordBatch.from_pylist(renamed, schema=source).slice(start), TARGET)
    result.validate(full=True)
    assert result.schema.equals(TARGET, check_metadata=True)
    # As text: NaNs are equal there.
    assert str(result.to_pylist()) == str(pa.RecordBatch.from_pylist(rows, schema=TARGET).slice(start).to_pylist())
