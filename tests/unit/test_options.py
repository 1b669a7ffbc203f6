"""Options are read once, refused with what would be right, and leave no secret behind."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from icefloe.connector.options import OPTIONS, options_page, parse_options
from icefloe.errors import OptionError

PATH = {"path": "/data/out", "checkpointLocation": "/data/checkpoint"}
TABLE = {"table": "db.events", "checkpointLocation": "/data/checkpoint"}


def refused(code: str, **given: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse_options({**PATH, **given})
    assert str(caught.value).startswith(code + ": ")
    return str(caught.value)


def test_keys_are_case_insensitive_and_defaults_are_those_of_the_docs() -> None:
    options = parse_options({"PATH": "/data/out", "CheckpointLocation": "/cp", "ROLLFILESIZE": "8MB"})
    assert (options.path, options.roll_file_size, options.visibility) == ("/data/out", 8 << 20, "batch")
    assert options.state_location == "/cp/icefloe"
    assert options.roll_interval == timedelta(minutes=15)
    assert options.memory_budget == 512 << 20


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("7 KB", 7 << 10), ("128mb", 128 << 20), ("2GB", 2 << 30), ("64B", 64)]
)
def test_sizes_are_powers_of_1024_and_a_bare_number_is_bytes(text: str, size: int) -> None:
    assert parse_options({**PATH, "rowGroupSize": text}).row_group_size == size


@pytest.mark.parametrize("text", ["", "0", "-1MB", "1.5GB", "12TB", "MB", "1e6"])
def test_a_bad_size_is_refused_with_an_example(text: str) -> None:
    assert "128MB" in refused("ICEFLOE_OPTION_VALUE", rowGroupSize=text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30 s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("2H", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
    ],
)
def test_durations_have_units(text: str, duration: timedelta) -> None:
    assert parse_options({**PATH, "rollInterval": text}).roll_interval == duration


@pytest.mark.parametrize("text", ["15", "0s", "fast", "1w", "-5m"])
def test_a_bad_duration_is_refused_with_an_example(text: str) -> None:
    assert "15m" in refused("ICEFLOE_OPTION_VALUE", rollInactivity=text)


def test_a_flag_is_true_or_false_and_nothing_else() -> None:
    assert parse_options({**TABLE, "mergeSchema": "TRUE"}).merge_schema
    refused("ICEFLOE_OPTION_VALUE", mergeSchema="yes")


def test_an_unknown_option_names_the_nearest() -> None:
    assert "'rollFileSize'" in refused("ICEFLOE_OPTION_UNKNOWN", rollFilesize_="8MB")
    assert "'s3.access-key-id'" in refused("ICEFLOE_OPTION_UNKNOWN", **{"s3.access-key": "x"})


def test_no_target_says_what_spark_drops() -> None:
    with pytest.raises(OptionError, match=r"ICEFLOE_OPTION_NO_TARGET.*partitionBy.*toTable"):
        parse_options({"checkpointLocation": "/cp"})


def test_two_targets_are_refused() -> None:
    refused("ICEFLOE_OPTION_TWO_TARGETS", table="db.events")


def test_options_of_tables_are_refused_for_a_path() -> None:
    refused("ICEFLOE_OPTION_CONFLICT", warehouse="/w")
    refused("ICEFLOE_OPTION_CONFLICT", keepSnapshots="5")


def test_a_stream_without_a_place_for_state_is_refused_and_a_batch_write_is_not() -> None:
    with pytest.raises(OptionError, match="ICEFLOE_OPTION_NO_STATE"):
        parse_options({"path": "/data/out"})
    assert parse_options({"path": "/data/out"}, streaming=False).state_location is None


def test_relative_locations_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    options = parse_options(
        {"path": "out", "checkpointLocation": f"file://{tmp_path}/cp", "stateLocation": "s3://b/s/"}
    )
    assert options.path == str(tmp_path / "out")
    assert options.checkpoint_location == str(tmp_path / "cp")
    assert options.state_location == "s3://b/s"


def test_secrets_are_in_no_repr_and_not_among_the_public_options() -> None:
    given = {
        **TABLE,
        "s3.secret-access-key": "hush-1",
        "s3.endpoint": "http://store",
        "catalog": "prod",
        "catalog.token": "hush-2",
        "catalog.uri": "http://user:hush-3@catalog",
    }
    options = parse_options(given)
    kept = repr(options) + repr(dict(options.public)) + repr(pickle.loads(pickle.dumps(options)))
    assert "hush" not in kept
    assert options.public["s3.endpoint"] == "http://store"
    assert options.s3_options["s3.secret-access-key"] == "hush-1"
    assert options.catalog_properties["token"] == "hush-2"


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("sqlite:////lake/catalog.db", True),
        ("http://catalog:8181", True),
        ("postgresql://user:password@host/db", False),
        ("http://catalog:8181?token=abc", False),
    ],
)
def test_the_address_of_a_catalog_is_kept_only_if_it_cannot_hold_a_secret(uri: str, kept: bool) -> None:
    options = parse_options({"table": "db.t", "stateLocation": "/s", "catalog.uri": uri})
    assert ("catalog.uri" in options.public) is kept


def test_every_option_has_a_line_in_the_generated_page() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "options.md").read_text(encoding="utf-8")
    assert page == options_page(), "run `make docs`"
    assert all(f"| `{option.key}` |" in page for option in OPTIONS)
