"""Scopes and streams from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.cli import show
from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from tests.cli.kit import CSV, SCHEMA, Line, column


def test_scopes_are_created_listed_and_deleted(line: Line) -> None:
    line("scope", "create", "iot", "--tag", "owner=plant-7")
    line("scope", "create", "web")
    assert column(line("scope", "list", "--json").json, "name") == ["iot", "web"]
    assert line("scope", "list", "--json").json[0]["tags"] == {"owner": "plant-7"}
    assert "owner=plant-7" in line("scope", "list").out
    line("scope", "delete", "web")
    assert column(line("scope", "list", "--json").json, "name") == ["iot"]


def test_listings_are_filtered_by_tag_and_name(line: Line) -> None:
    line("scope", "create", "iot", "--tag", "owner=plant-7")
    line("scope", "create", "web")
    for name in ("iot/sensor-1", "iot/sensor-2", "web/clicks"):
        line("stream", "create", name, "--tag", f"of={name[:3]}")
    assert column(line("scope", "list", "--tag", "owner", "--json").json, "name") == ["iot"]
    assert column(line("scope", "list", "--match", "w*", "--json").json, "name") == ["web"]
    assert column(line("stream", "list", "--tag", "of=web", "--json").json, "name") == ["web/clicks"]
    assert column(line("stream", "list", "iot", "--match", "*-2", "--tag", "of", "--json").json, "name") == [
        "iot/sensor-2"
    ]
    assert "sensor-1" in line("stream", "list", "--match", "iot/*1").out
    assert line("group", "list", "--match", "dash*", "--json").json == []
    assert "name=value" in line.refused("stream", "list", "--tag", "=x")


def test_a_scope_is_created_once_unless_it_may_exist(line: Line) -> None:
    line("scope", "create", "iot")
    assert line.refused("scope", "create", "iot") == "scope 'iot' already exists"
    line("scope", "create", "iot", "--exist-ok")


def test_a_scope_with_streams_is_not_deleted(sensors: Line) -> None:
    assert "still holds 2 stream(s)" in sensors.refused("scope", "delete", "iot")


def test_a_verb_that_only_looks_makes_no_store(line: Line) -> None:
    for verb in (("scope", "list"), ("stream", "list"), ("read", "a/b"), ("check",), ("query", "SELECT 1")):
        assert "no store found in" in line.refused(*verb)
    assert not line.store.exists()


def test_the_store_may_be_named_behind_the_verb_too(line: Line, tmp_path: Path) -> None:
    line("scope", "create", "iot", "--store", tmp_path / "other")
    assert (tmp_path / "other").is_dir()
    assert not line.store.exists()


def test_show_reports_columns_segments_cuts_and_epochs(sensors: Line) -> None:
    sensors("stream", "scale", "iot/sensors", "--segments", "2")
    told = sensors("stream", "show", "iot/sensors", "--json").json
    assert (told["events"], told["segments_open"], told["epoch"], told["key"], told["time"]) == (
        3,
        2,
        1,
        "device",
        "at",
    )
    assert [c["type"] for c in told["columns"]] == ["string", "timestamp[us, tz=UTC]", "double"]
    assert [(s["segment"], s["state"], s["events"]) for s in told["segments"]] == [
        ("0.0", "retired", 3),
        ("1.1", "open", 0),
        ("1.2", "open", 0),
    ]
    assert told["bytes"] == told["segments"][0]["bytes"] > 0
    assert told["epochs"] == [{"epoch": 0, "segments": ["0.0"]}, {"epoch": 1, "segments": ["1.1", "1.2"]}]
    text = sensors("stream", "show", "iot/sensors").out
    assert told["head"] in text
    assert told["tail"] in text


def test_list_reports_all_streams_or_those_of_a_scope(sensors: Line) -> None:
    sensors("scope", "create", "web")
    sensors("stream", "create", "web/clicks")
    listed = sensors("stream", "list", "--json").json
    assert [(s["name"], s["events"]) for s in listed] == [("iot/raw", 0), ("iot/sensors", 3), ("web/clicks", 0)]
    assert column(sensors("stream", "list", "web", "--json").json, "name") == ["web/clicks"]
    assert "scope 'nope' not found" in sensors.refused("stream", "list", "nope")


def test_a_schema_may_come_from_a_file(line: Line, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(CSV)
    line("scope", "create", "iot")
    made = line("stream", "create", "iot/m", "--schema-from", tmp_path / "m.csv", "--time", "at", "--json").json
    assert made["time"] == "at"
    told = line("stream", "show", "iot/m", "--json").json
    assert [c["type"] for c in told["columns"]] == ["string", "timestamp[us, tz=UTC]", "double"]


def test_segments_are_split_and_merged(sensors: Line) -> None:
    assert "1.1, 1.2, 1.3" in sensors("stream", "scale", "iot/raw", "--split", "0.0", "--into", "3").err
    assert sensors("stream", "show", "iot/raw", "--json").json["segments_open"] == 3
    sensors("stream", "scale", "iot/raw", "--merge", "1.1,1.2")
    assert sensors("stream", "show", "iot/raw", "--json").json["segments_open"] == 2
    assert "pass exactly one of" in sensors.refused("stream", "scale", "iot/raw")
    assert "expected a segment" in sensors.refused("stream", "scale", "iot/raw", "--split", "x")


def test_a_sealed_stream_is_read_but_not_written(sensors: Line) -> None:
    sensors("stream", "seal", "iot/sensors")
    assert len(sensors("read", "iot/sensors").rows) == 3
    assert sensors.refused("write", "iot/sensors", "--create", stdin='{"device":"a"}') == (
        "stream 'iot/sensors' is sealed: no more events can be appended"
    )
    assert "is sealed" in sensors.refused("stream", "scale", "iot/sensors", "--segments", "2")


def test_truncation_removes_what_lies_before(sensors: Line) -> None:
    assert sensors("stream", "truncate", "iot/sensors", "--at", "-1h").err == "0 events removed from 'iot/sensors'\n"
    pointer = sensors("read", "iot/sensors", "--meta").rows[1]["_pointer"]
    sensors("write", "iot/sensors", "--create", stdin='{"device":"z"}\n')
    cut = sensors("stream", "show", "iot/sensors", "--json").json["tail"]
    sensors("write", "iot/sensors", "--create", stdin='{"device":"y"}\n')
    assert "4 events removed" in sensors("stream", "truncate", "iot/sensors", "--at", cut, "--yes").err
    assert column(sensors("read", "iot/sensors").rows, "device") == ["y"]
    assert "was truncated" in sensors.refused("read", "iot/sensors", "--from", pointer)


def test_a_deleted_stream_is_gone(sensors: Line) -> None:
    sensors("stream", "delete", "iot/raw", "--yes")
    assert sensors.refused("stream", "show", "iot/raw") == "stream 'iot/raw' not found"
    assert sensors.refused("stream", "delete", "iot/raw") == "stream 'iot/raw' not found"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a", "its end is unexpected"),
        ("a:", "its end is unexpected"),
        ("a:int b:int", "'b' is unexpected"),
        ("a:inti", "unknown type 'inti'"),
        ("a:list<int", "its end is unexpected"),
        ("a:decimal(3,9)", "is not a valid type"),
        ("a:int, a:int", "occurs more than once in the schema"),
        ("_offset:int", "can't be named"),
        ("a:int?", "'?' is unexpected"),
        ("", "its end is unexpected"),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(line: Line, text: str, complaint: str) -> None:
    line("scope", "create", "s")
    assert complaint in line.refused("stream", "create", "s/x", "--schema", text)


def test_a_schema_may_nest() -> None:
    import pyarrow as pa

    from anabranch.core.schema_text import parse_schema

    parsed = parse_schema('a: list<struct<b:int, c:decimal(10,2)>>, m:map<string,date>, "odd name":text,')
    assert parsed.field("a").type == pa.list_(pa.struct([("b", pa.int64()), ("c", pa.decimal128(10, 2))]))
    assert parsed.field("m").type == pa.map_(pa.string(), pa.date32())
    assert parsed.names == ["a", "m", "odd name"]
    with pytest.raises(InvalidArgument):
        parse_schema("a:map<string>")


def test_keys_and_times_must_name_fitting_columns(line: Line) -> None:
    line("scope", "create", "s")
    for option, complaint in (
        (("--key", "nope"), "key='nope' is not a column"),
        (("--key", "celsius"), "can't be a routing key"),
        (("--time", "celsius"), "can't be the event time"),
    ):
        assert complaint in line.refused("stream", "create", "s/x", "--schema", SCHEMA, *option)
    assert "pass schema= too" in line.refused("stream", "create", "s/x", "--key", "k")


def test_a_stream_gains_columns_while_it_is_read_and_written(sensors: Line, tmp_path: Path) -> None:
    made = sensors("stream", "evolve", "iot/sensors", "--add", "humidity:double, firmware:string", "--json").json
    assert made["added"] == ["humidity", "firmware"]
    sensors("write", "iot/sensors", stdin='{"device":"c","firmware":"2.0"}\n')
    assert [row["firmware"] for row in sensors("read", "iot/sensors").rows] == [None, None, None, "2.0"]
    (tmp_path / "newer.csv").write_text("device,celsius,site\nd,1,7\n")
    assert sensors("stream", "evolve", "iot/sensors", "--schema-from", tmp_path / "newer.csv").err == (
        "added site to stream 'iot/sensors'\n"
    )
    assert "has these columns already" in sensors("stream", "evolve", "iot/sensors", "--add", "site:int").err


def test_columns_do_not_change_their_type_and_raw_streams_have_none(sensors: Line) -> None:
    assert "column 'celsius' can't change its type from double" in sensors.refused(
        "stream", "evolve", "iot/sensors", "--add", "celsius:string"
    )
    assert "a raw stream has no schema" in sensors.refused("stream", "evolve", "iot/raw", "--add", "a:int")
    assert "either --add or --schema-from" in sensors.refused("stream", "evolve", "iot/sensors")


def test_checks_are_set_shown_and_removed(sensors: Line) -> None:
    sensors(
        "stream", "create", "iot/checked", "--schema", "device:string, n:long", "--check", "range: n BETWEEN 0 AND 9"
    )
    sensors("stream", "check", "iot/checked", "--add", "device: device <> ''")
    assert sensors("stream", "check", "iot/checked", "--json").json["checks"] == {
        "device": "device <> ''",
        "range": "n BETWEEN 0 AND 9",
    }
    assert "range   n BETWEEN 0 AND 9" in sensors("stream", "show", "iot/checked").out
    refused = sensors.refused("write", "iot/checked", stdin='{"device": "a", "n": 1}\n{"device": "a", "n": 10}\n')
    assert "breaks the check 'range' (n BETWEEN 0 AND 9): n = 10" in refused
    assert "device  device <> ''" in sensors("stream", "check", "iot/checked", "--remove", "range").out
    assert "has no checks" in sensors("stream", "check", "iot/checked", "--remove", "device").err
    assert "expected a check as 'name: condition'" in sensors.refused(
        "stream", "check", "iot/checked", "--add", "n > 0"
    )


def test_a_stream_that_is_deleted_while_a_broker_lists_streams_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "is_broker", lambda url: True)  # a store has the methods of a broker's
    with ab.connect(tmp_path, create=True) as store:
        names: Any = store
        store.scopes.create("s")
        for name in ("s/a", "s/b"):
            store.streams.create(name)
        is_ephemeral = store.ephemeral.is_ephemeral

        def after_deletion(stream: StreamId) -> bool:
            if store.streams.exists("s/a"):
                store.streams.delete("s/a")
            return is_ephemeral(stream)

        monkeypatch.setattr(store.ephemeral, "is_ephemeral", after_deletion)
        rows = show.summaries(names, None, internal=False)
    assert [row["name"] for row in rows] == ["s/b"]


@pytest.mark.parametrize("segments", [0, -3])
def test_a_stream_has_a_segment_at_least(line: Line, segments: int) -> None:
    line("scope", "create", "iot")
    refused = line.refused("stream", "create", "iot/raw", "--segments", segments)
    assert refused == f"expected the number of segments to be 1 to 10,000, got {segments}"
