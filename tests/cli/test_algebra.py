"""Streams like files, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch import limits
from tests.cli.kit import Line


def test_copy_makes_a_stream_of_the_same_events(sensors: Line) -> None:
    told = sensors("copy", "iot/sensors", "iot/again", "--json").json
    assert (told["name"], told["events"]) == ("iot/again", 3)
    assert sensors("read", "iot/again").out.count("\n") == sensors("read", "iot/sensors").out.count("\n")
    assert "3 events" in sensors("copy", "iot/sensors", "iot/again").err
    assert sensors.refused("copy", "iot/raw", "iot/again") == "stream 'iot/again' already exists"


def test_copy_takes_a_range(sensors: Line) -> None:
    tail = sensors("stream", "show", "iot/sensors", "--json").json["tail"]
    assert sensors("copy", "iot/sensors", "iot/rest", "--from", tail, "--json").json["events"] == 0
    assert sensors("copy", "iot/sensors", "iot/all", "--to", "tail", "--json").json["events"] == 3


def test_copy_by_a_filter_takes_conditions_and_keys(sensors: Line) -> None:
    told = sensors("copy", "iot/sensors", "iot/some", "--where", "celsius > 3 OR device = 'b'", "--json").json
    rows = sensors("read", "iot/sensors", "--format", "jsonl").out.splitlines()
    assert told["events"] == told["filtered"]["events"] < len(rows)
    assert sensors("read", "iot/some").out.count("\n") == told["events"]
    assert "1 event of" in sensors("copy", "iot/sensors", "iot/b", "--key", "b").err
    assert "3 events of 3 of 'iot/sensors' filtered into 'iot/some'" in sensors("job", "pause", told["job"]).err
    said = sensors.refused("copy", "iot/sensors", "iot/no", "--where", "celsius >")
    assert said.startswith("the condition 'celsius >' can't be used: syntax error")
    assert "--to-store" in sensors.refused("copy", "iot/sensors", "iot/no", "--where", "true", "--independent")


def test_append_puts_a_stream_behind_another(sensors: Line) -> None:
    sensors("copy", "iot/sensors", "iot/more")
    told = sensors("append", "iot/more", "iot/sensors", "--json").json
    assert told["appended"] == 3
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 6
    assert "can't join" in sensors.refused("append", "iot/raw", "iot/sensors")


def test_stitch_joins_streams_and_may_replace_them(sensors: Line) -> None:
    sensors("copy", "iot/sensors", "iot/more")
    sensors("stitch", "iot/sensors", "iot/more", "iot/sensors", "--into", "iot/all")
    assert sensors("stream", "show", "iot/all", "--json").json["events"] == 9
    no_column = "--deduplicate takes a list such as a,b, not ''"
    assert sensors.refused("stitch", "iot/all", "iot/more", "--into", "iot/one", "--deduplicate", "") == no_column
    assert sensors.refused("append", "iot/more", "iot/all", "--deduplicate", "") == no_column
    assert sensors.refused("stitch", "iot/all", "--into", "iot/more") == "stream 'iot/more' already exists"
    sensors("stitch", "iot/sensors", "iot/more", "--into", "iot/sensors", "--drop-sources", "--yes")
    assert [row["name"] for row in sensors("stream", "list", "--json").json] == ["iot/all", "iot/raw", "iot/sensors"]


def test_rename_and_move_change_names_and_the_old_ones_say_so(sensors: Line) -> None:
    sensors("rename", "iot/sensors", "iot/thermometers")
    sensors("scope", "create", "archive")
    assert sensors("move", "iot/thermometers", "archive", "--json").json["name"] == "archive/thermometers"
    assert sensors.refused("read", "iot/sensors") == "stream 'iot/sensors' was renamed to 'archive/thermometers'"
    assert sensors("read", "archive/thermometers").out.count("\n") >= 3


def test_scope_copy_copies_every_stream(sensors: Line) -> None:
    assert sensors("scope", "copy", "iot", "before", "--json").json["streams"] == 2
    assert [row["name"] for row in sensors("stream", "list", "before", "--json").json] == [
        "before/raw",
        "before/sensors",
    ]


def test_replace_puts_other_events_in_the_place_of_a_time_range(sensors: Line) -> None:
    sensors("copy", "iot/sensors", "iot/repaired")
    hour = ("--between", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z")
    told = sensors("replace", "iot/sensors", *hour, "--with", "iot/repaired", "--yes", "--json").json
    assert (told["way"], told["removed"], told["added"], told["rewritten"]) == ("metadata", 1, 3, 0)
    assert (
        "1 event of 'iot/sensors' removed"
        not in sensors("replace", "iot/sensors", *hour, "--with-nothing", "--yes").out
    )
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 4
    assert "pass either" in sensors.refused("replace", "iot/sensors", *hour)


def test_a_replacement_of_scattered_events_is_a_job(
    sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLACE_RUNS_MIN", 1)
    times = [f"a,2026-01-01T00:00:0{second}" for second in (1, 5, 1, 5, 1)]
    (tmp_path / "late.csv").write_text("\n".join(["device,at,celsius", *(f"{each}Z,1.0" for each in times)]) + "\n")
    sensors("write", "iot/sensors", "--create", tmp_path / "late.csv")
    hour = ("--between", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z")
    told = sensors("replace", "iot/sensors", *hour, "--with-nothing", "--yes", "--json").json
    assert (told["way"], told["removed"]) == ("rewritten", 4)
    (job,) = sensors("job", "list", "--json").json
    assert (job["job"], job["verb"], job["state"], job["target"]) == (told["job"], "replace", "done", "iot/sensors")
    assert job["between"] == ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"]
    assert job["events"] == job["events_total"] == told["rewritten"] > 0
    shown = sensors("job", "show", job["job"]).out
    assert "nothing" in shown
    assert "2026-01-01T00:00:01Z, 2026-01-01T00:00:02Z" in shown
    told = sensors("job", "resume", job["job"])
    assert f"{job['events']} events of {job['events']} stored again to replace events of 'iot/sensors'" in told.err


def test_cut_warns_where_events_lie_on_the_wrong_side(sensors: Line) -> None:
    at = ("cut", "iot/sensors", "--at", "2026-01-01T00:00:02Z", "--by", "event")
    assert "warning" not in sensors(*at).err
    sensors("append", "iot/sensors", "iot/sensors")
    assert "warning: 'iot/sensors' is not in order of event time: it has 2 events after the cut" in sensors(*at).err
    assert sensors(*at, "--json").json["early_behind"] == 2


def test_a_range_by_event_time_warns_where_events_lie_on_the_wrong_side(sensors: Line) -> None:
    start = ("--from", "2026-01-01T00:00:02Z", "--by", "event")
    assert "warning" not in sensors("copy", "iot/sensors", "iot/late", *start).err
    sensors("append", "iot/sensors", "iot/sensors")
    told = sensors("copy", "iot/sensors", "iot/later", *start).err
    assert "warning: 'iot/sensors' is not in order of event time: it has 2 events after the cut" in told
    assert "anabranch replace" in told
