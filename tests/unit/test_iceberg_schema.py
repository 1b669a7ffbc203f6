"""An Iceberg schema read from its JSON, and the writer's Arrow schema made from it."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from icefloe.errors import SchemaError
from icefloe.schemas.iceberg_schema import IcebergSchema, arrow_schema_from_iceberg
from support.wide_schema import wide_schema_json


def test_the_arrow_schema_has_pyicebergs_ids_names_and_nullability_at_every_level() -> None:
    spec = wide_schema_json(required=True)
    theirs = schema_to_pyarrow(Schema.model_validate(spec))
    assert describe(list(arrow_schema_from_iceberg(spec))) == describe(list(theirs))


def test_json_text_is_taken_as_well() -> None:
    spec = wide_schema_json()
    assert arrow_schema_from_iceberg(json.dumps(spec)).equals(arrow_schema_from_iceberg(spec), check_metadata=True)


def test_zoned_times_are_utc_and_special_types_are_arrows_own() -> None:
    types = {"a": "timestamptz", "b": "timestamp", "c": "uuid", "d": "fixed[3]", "e": "time", "f": "decimal(5,2)"}
    fields = [{"id": i, "name": n, "required": False, "type": t} for i, (n, t) in enumerate(types.items(), start=1)]
    schema = arrow_schema_from_iceberg({"type": "struct", "fields": fields})
    expected = [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.uuid(), pa.binary(3), pa.time64("us")]
    assert schema.types == [*expected, pa.decimal128(5, 2)]


def test_a_path_leads_to_every_field_and_back() -> None:
    schema = IcebergSchema.from_json(wide_schema_json())
    assert schema.schema_id == 7
    assert schema.path_of(104) == "place.amounts.element"
    assert schema.path_of(204) == "tags.value.element"
    assert schema.path_of(999) is None


def test_a_schema_is_hashable_and_survives_pickling() -> None:
    schema = IcebergSchema.from_json(wide_schema_json())
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(schema) == hash(IcebergSchema.from_json(wide_schema_json()))


@pytest.mark.parametrize("spec", [{}, {"fields": [{}]}, {"fields": [{"id": 1, "name": "a", "required": 1}]}, "{"])
def test_a_schema_that_is_not_as_the_spec_has_it_is_refused(spec: Any) -> None:
    with pytest.raises(SchemaError, match="ICEFLOE_SCHEMA_INVALID"):
        IcebergSchema.from_json(spec)


def test_a_type_of_a_later_spec_is_refused_with_the_column() -> None:
    spec = {"fields": [{"id": 1, "name": "v", "required": False, "type": "variant"}]}
    with pytest.raises(SchemaError, match="ICEFLOE_TYPE_UNSUPPORTED: Column 'v' has Iceberg type 'variant'"):
        arrow_schema_from_iceberg(spec)


def test_nothing_on_the_way_of_a_row_imports_pyiceberg() -> None:
    modules = "schemas.normalize, schemas.field_ids, schemas.sink_schema, connector.partitioner, connector.file_metrics"
    code = "\n".join([f"import icefloe.{name}" for name in modules.split(", ")])
    check = "import sys; sys.exit('pyiceberg' in sys.modules or 'pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", f"{code}\n{check}"], check=False).returncode == 0


def describe(fields: list[pa.Field]) -> list[Any]:
    found = []
    for field in fields:
        arrow_type = field.type
        if pa.types.is_map(arrow_type):
            below = [arrow_type.key_field, arrow_type.item_field]
        else:
            below = [arrow_type.field(i) for i in range(arrow_type.num_fields)]
        kind = None if below else str(arrow_type).removeprefix("large_")
        found.append((field.name, field.nullable, field.metadata[b"PARQUET:field_id"], kind, describe(below)))
    return found
