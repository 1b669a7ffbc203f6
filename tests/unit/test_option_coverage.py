"""Every option does what its line in docs/options.md says: each test here fails when its option is ignored."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from icefloe.connector import task
from icefloe.connector.finish import finish
from icefloe.connector.messages import OPERATOR_ID
from icefloe.connector.options import OPTIONS, PREFIXES
from icefloe.connector.task import run_task
from icefloe.errors import IcefloeError, OptionError
from icefloe.state.task_info import TaskInfo
from support.harness import EVENTS, Harness, event_rows
from support.rows import visible_files
from support.s3_service import Bucket

Make = Callable[..., Harness]


@pytest.fixture
def query(tmp_path: Path) -> Make:
    """Make queries into a directory of their own each, or into tables of one warehouse."""

    def make(name: str = "events", *, schema: pa.Schema = EVENTS, **options: str) -> Harness:
        given = {"table": f"db.{name}", "warehouse": str(tmp_path / "lake")} if options.pop("into", "") else {}
        target = given or ({} if "path" in options or "table" in options else {"path": str(tmp_path / name)})
        return Harness(tmp_path / f"{name}-checkpoint", {**target, **options}, schema=schema)

    return make


def files(harness: Harness) -> list[Path]:
    return visible_files(Path(harness.options["path"]))


def row_groups(harness: Harness) -> int:
    return sum(pq.read_metadata(file).num_row_groups for file in files(harness))


def lake(folder: Path, name: str = "icefloe") -> Any:
    return load_catalog(name, type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))


def batches(count: int, rows: int = 50) -> list[pa.RecordBatch]:
    return [event_rows(number * rows, rows) for number in range(count)]


def test_every_option_has_a_test_in_this_module() -> None:
    names = [name for name in vars(sys.modules[__name__]) if name.startswith("test_")]
    keys = [option.attribute for option in OPTIONS]
    keys += [prefix.rstrip(".").lower().replace("tableproperty", "table_property") + "_star" for prefix in PREFIXES]
    missing = [key for key in keys if not any(name.startswith(f"test_{key}_") for name in names)]
    assert missing == []


def test_path_is_where_the_files_are(query: Make, tmp_path: Path) -> None:
    query(path=str(tmp_path / "here")).run(0, [batches(1)])
    assert len(visible_files(tmp_path / "here")) == 1


def test_table_is_the_one_that_gets_the_rows(query: Make, tmp_path: Path) -> None:
    query(table="db.here", warehouse=str(tmp_path / "lake")).run(0, [batches(1)])
    assert lake(tmp_path / "lake").load_table("db.here").scan().to_arrow().num_rows == 50


def test_warehouse_holds_catalog_and_data(query: Make, tmp_path: Path) -> None:
    query(table="db.events", warehouse=str(tmp_path / "elsewhere")).run(0, [batches(1)])
    assert (tmp_path / "elsewhere" / "catalog.db").exists()
    assert visible_files(tmp_path / "elsewhere")


def test_catalog_names_the_catalog_that_knows_the_table(query: Make, tmp_path: Path) -> None:
    test_catalog_star_reaches_pyiceberg(query, tmp_path)
    # Two catalogs share the database, and only the one that was named has the table.
    assert lake(tmp_path, "mine").table_exists("db.events")
    assert not lake(tmp_path, "icefloe").table_exists("db.events")


def test_catalog_star_reaches_pyiceberg(query: Make, tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "data")}
    given = {f"catalog.{key}": value for key, value in properties.items()}
    query(table="db.events", catalog="mine", **given).run(0, [batches(1)])
    assert load_catalog("mine", **properties).load_table("db.events").scan().to_arrow().num_rows == 50


def test_checkpoint_location_holds_the_state_by_default(query: Make) -> None:
    harness = query()
    harness.run(0, [batches(1)])
    assert list((harness.checkpoint / "icefloe").glob("*/job.metadata"))


def test_state_location_holds_the_state(query: Make, tmp_path: Path) -> None:
    harness = query(stateLocation=str(tmp_path / "state"))
    harness.run(0, [batches(1)])
    assert list((tmp_path / "state").glob("*/job.metadata"))
    assert not (harness.checkpoint / "icefloe").exists()


def test_create_table_false_refuses_a_table_that_is_not_there(query: Make) -> None:
    with pytest.raises(IcefloeError, match="ICEFLOE_TABLE_NOT_FOUND"):
        query(into="table", createTable="false").run(0, [batches(1)])


def test_partition_by_makes_a_folder_for_each_value(query: Make) -> None:
    harness = query(partitionBy="region")
    harness.run(0, [batches(1)])
    assert len({file.parent for file in files(harness)}) == 4


def test_merge_schema_adds_what_the_table_lacks(query: Make, tmp_path: Path) -> None:
    query(into="table").run(0, [batches(1)])
    wider = EVENTS.append(pa.field("note", pa.string()))
    rows = pa.RecordBatch.from_arrays([*event_rows(50, 10).columns, pa.array(["x"] * 10)], schema=wider)
    with pytest.raises(IcefloeError, match="note"):
        query(into="table", schema=wider).run(1, [[rows]])
    query(into="table", schema=wider, mergeSchema="true").run(1, [[rows]])
    assert "note" in lake(tmp_path / "lake").load_table("db.events").schema().column_names


def test_visibility_roll_keeps_files_in_flight(query: Make) -> None:
    shown, kept = query("shown"), query("kept", visibility="roll")
    for harness in (shown, kept):
        harness.run(0, [batches(1)])
    assert (len(files(shown)), len(files(kept))) == (1, 0)


def test_roll_file_size_ends_a_file(query: Make) -> None:
    one, many = query("one"), query("many", rollFileSize="10KB", compression="uncompressed")
    for harness in (one, many):
        harness.run(0, [batches(40)])
    assert len(files(one)) == 1
    assert len(files(many)) >= 4


def test_roll_interval_ends_a_file_by_its_age(query: Make) -> None:
    kept, aged = query("kept", visibility="roll"), query("aged", visibility="roll", rollInterval="1ms")
    for harness in (kept, aged):
        harness.run(0, [batches(1)])
        harness.run(1, [batches(1)])
    assert (len(files(kept)), bool(files(aged))) == (0, True)


def test_roll_inactivity_ends_a_file_that_gets_no_rows(query: Make) -> None:
    kept, idle = query("kept", visibility="roll"), query("idle", visibility="roll", rollInactivity="1ms")
    for harness in (kept, idle):
        harness.run(0, [batches(1)])
        harness.run(1, [[]])
    assert (len(files(kept)), bool(files(idle))) == (0, True)


def test_roll_watermark_ends_a_file_that_is_complete(query: Make) -> None:
    given = {"visibility": "roll", "eventTimeColumn": "ts"}
    kept, passed = query("kept", **given), query("passed", **given, rollWatermark="true")
    latest_ms = event_rows(0, 50)["ts"][-1].value // 1000
    for harness in (kept, passed):
        harness.run(0, [batches(1)], watermark_ms=0)
        harness.run(1, [[]], watermark_ms=latest_ms)
        assert files(harness) == []
        harness.run(2, [[]], watermark_ms=latest_ms + 1)
    assert (len(files(kept)), len(files(passed))) == (0, 1)


def test_row_group_size_cuts_row_groups(query: Make) -> None:
    one, many = query("one"), query("many", rowGroupSize="10KB", compression="uncompressed")
    for harness in (one, many):
        harness.run(0, [batches(40)])
    assert row_groups(one) == 1
    assert row_groups(many) >= 4


def test_compression_is_in_the_footer(query: Make) -> None:
    harness = query(compression="snappy")
    harness.run(0, [batches(1)])
    assert pq.read_metadata(files(harness)[0]).row_group(0).column(0).compression == "SNAPPY"


def test_compression_level_changes_the_size(query: Make) -> None:
    fast, small = query("fast", compressionLevel="1"), query("small", compressionLevel="19")
    for harness in (fast, small):
        harness.run(0, [batches(40)])
    assert files(small)[0].stat().st_size < files(fast)[0].stat().st_size


def test_part_size_cuts_an_upload(query: Make, moto_bucket: Bucket) -> None:
    schema = pa.schema({"id": pa.int64(), "region": pa.string()})
    texts = pa.array([os.urandom(4096).hex() for _ in range(1536)])
    batch = pa.record_batch([pa.array(range(1536), pa.int64()), texts], schema=schema)
    parts = {}
    for size in ("5MB", "16MB"):
        name = f"parts{size}"
        given = {"path": f"{moto_bucket.url}/{name}", "partSize": size, "compression": "uncompressed"}
        query(name, schema=schema, **given, **moto_bucket.options).run(0, [[batch]])
        (key,) = [key for key in moto_bucket.keys(name) if key.endswith(".parquet")]
        client = moto_bucket.service.client()
        parts[size] = int(client.head_object(Bucket=moto_bucket.name, Key=key)["ETag"].strip('"').partition("-")[2])
        client.close()
    assert parts["5MB"] > parts["16MB"] >= 1


def test_max_open_files_closes_the_file_written_longest_ago(query: Make) -> None:
    given = {"partitionBy": "region", "memoryBudget": "4KB"}
    free, tight = query("free", **given), query("tight", **given, maxOpenFiles="1")
    for harness in (free, tight):
        harness.run(0, [batches(4)])
    assert len(files(free)) == 4
    assert len(files(tight)) > 4


def test_memory_budget_encodes_the_largest_buffer(query: Make) -> None:
    free, tight = query("free"), query("tight", memoryBudget="16KB")
    for harness in (free, tight):
        harness.run(0, [batches(40)])
    assert row_groups(free) == 1
    assert row_groups(tight) > 1


def test_file_prefix_is_in_front_of_every_name(query: Make) -> None:
    harness = query(filePrefix="events-")
    harness.run(0, [batches(1)])
    assert [file.name.startswith("events-") for file in files(harness)] == [True]


def test_event_time_column_must_be_one_of_the_stream(query: Make) -> None:
    with pytest.raises(OptionError, match="ICEFLOE_EVENT_TIME_COLUMN"):
        query(eventTimeColumn="when").run(0, [batches(1)])


@pytest.mark.parametrize("into", ["", "table"])
def test_drop_event_time_leaves_the_column_out(query: Make, tmp_path: Path, into: str) -> None:
    given = {"into": into} if into else {}
    query(eventTimeColumn="TS", dropEventTime="true", **given).run(0, [batches(1)])
    (file,) = visible_files(tmp_path)
    assert pq.read_schema(file).names == ["id", "region", "amount"]


def test_drop_event_time_needs_one_and_leaves_nothing_to_a_watermark(query: Make) -> None:
    with pytest.raises(OptionError, match="ICEFLOE_OPTION_CONFLICT: dropEventTime"):
        query(dropEventTime="true").run(0, [batches(1)])
    with pytest.raises(OptionError, match="ICEFLOE_OPTION_CONFLICT: rollWatermark"):
        query(dropEventTime="true", rollWatermark="true", eventTimeColumn="ts").run(0, [batches(1)])


def test_a_watermark_cannot_roll_the_files_of_a_path_that_is_partitioned_by_its_column(query: Make) -> None:
    with pytest.raises(OptionError, match="ICEFLOE_OPTION_CONFLICT: rollWatermark compares the watermark with 'ts'"):
        query(visibility="roll", rollWatermark="true", eventTimeColumn="ts", partitionBy="ts").run(0, [batches(1)])


def test_keep_epochs_bounds_the_records(query: Make) -> None:
    many, few = query("many"), query("few", keepEpochs="2")
    for harness in (many, few):
        for batch in range(5):
            harness.run(batch, [batches(1)])
    records = [len(list(h.checkpoint.glob("icefloe/*/checkpoints/*/checkpoint.metadata"))) for h in (many, few)]
    assert records == [5, 2]


def test_keep_snapshots_expires_the_jobs_own(query: Make, tmp_path: Path) -> None:
    many, few = query("many", into="table"), query("few", into="table", keepSnapshots="2")
    for harness in (many, few):
        for batch in range(6):
            harness.run(batch, [batches(1)])
    counts = [len(lake(tmp_path / "lake").load_table(f"db.{name}").snapshots()) for name in ("many", "few")]
    assert counts[0] == 6
    assert counts[1] <= 4


def test_shared_disk_says_that_other_machines_have_it_too(query: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for shared in ("false", "true"):
        harness = query(f"shared-{shared}", sharedDisk=shared)
        harness.begin(0)
        settings = harness.driver().prepare()
        monkeypatch.setattr(task, "this_machine", lambda: "another machine")
        info = TaskInfo(harness.job_id, OPERATOR_ID, 0)
        if shared == "true":
            assert run_task(settings, info, 0, iter(batches(1))).input_rows == 50
        else:
            with pytest.raises(OptionError, match="ICEFLOE_DISK_NOT_SHARED"):
                run_task(settings, info, 0, iter(batches(1)))
        monkeypatch.undo()


def test_s3_star_reaches_the_store_and_no_record_keeps_its_secret(query: Make, moto_bucket: Bucket) -> None:
    given = {"path": f"{moto_bucket.url}/out", "stateLocation": f"{moto_bucket.url}/state", "visibility": "roll"}
    query(**given, **moto_bucket.options).run(0, [batches(1)])
    assert finish(f"{moto_bucket.url}/state", options=moto_bucket.options).rows == 50
    client = moto_bucket.service.client()
    secret = moto_bucket.options["s3.secret-access-key"].encode()
    for key in moto_bucket.keys(prefix=""):
        assert secret not in client.get_object(Bucket=moto_bucket.name, Key=key)["Body"].read(), key
    client.close()


def test_table_property_star_is_set_at_creation(query: Make, tmp_path: Path) -> None:
    query(into="table", **{"tableProperty.owner": "us"}).run(0, [batches(1)])
    assert lake(tmp_path / "lake").load_table("db.events").properties["owner"] == "us"
