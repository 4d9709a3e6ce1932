"""Streams like files, from the command line."""

from __future__ import annotations

from tests.cli.kit import Line


def test_copy_makes_a_stream_of_the_same_events(sensors: Line) -> None:
    told = sensors("copy", "iot/sensors", "iot/again", "--json").json
    assert (told["name"], told["events"]) == ("iot/again", 3)
    assert sensors("read", "iot/again").out.count("\n") == sensors("read", "iot/sensors").out.count("\n")
    assert "3 events" in sensors("copy", "iot/sensors", "iot/again").err
    assert sensors.refused("copy", "iot/raw", "iot/again") == "stream 'iot/again' exists already"


def test_copy_takes_a_range(sensors: Line) -> None:
    tail = sensors("stream", "show", "iot/sensors", "--json").json["tail"]
    assert sensors("copy", "iot/sensors", "iot/rest", "--from", tail, "--json").json["events"] == 0
    assert sensors("copy", "iot/sensors", "iot/all", "--to", "tail", "--json").json["events"] == 3


def test_append_puts_a_stream_behind_another(sensors: Line) -> None:
    sensors("copy", "iot/sensors", "iot/more")
    told = sensors("append", "iot/more", "iot/sensors", "--json").json
    assert told["appended"] == 3
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 6
    assert "can't be joined" in sensors.refused("append", "iot/raw", "iot/sensors")


def test_stitch_joins_streams_and_may_replace_them(sensors: Line) -> None:
    sensors("copy", "iot/sensors", "iot/more")
    sensors("stitch", "iot/sensors", "iot/more", "iot/sensors", "--into", "iot/all")
    assert sensors("stream", "show", "iot/all", "--json").json["events"] == 9
    assert sensors.refused("stitch", "iot/all", "--into", "iot/more") == "stream 'iot/more' exists already"
    sensors("stitch", "iot/sensors", "iot/more", "--into", "iot/sensors", "--drop-sources", "--yes")
    assert [row["name"] for row in sensors("stream", "list", "--json").json] == ["iot/all", "iot/raw", "iot/sensors"]


def test_rename_and_move_change_names_and_the_old_ones_say_so(sensors: Line) -> None:
    sensors("rename", "iot/sensors", "iot/thermometers")
    sensors("scope", "create", "archive")
    assert sensors("move", "iot/thermometers", "archive", "--json").json["name"] == "archive/thermometers"
    assert sensors.refused("read", "iot/sensors") == "stream 'iot/sensors' is called 'archive/thermometers' now"
    assert sensors("read", "archive/thermometers").out.count("\n") >= 3


def test_scope_copy_copies_every_stream(sensors: Line) -> None:
    assert sensors("scope", "copy", "iot", "before", "--json").json["streams"] == 2
    assert [row["name"] for row in sensors("stream", "list", "before", "--json").json] == [
        "before/raw",
        "before/sensors",
    ]
