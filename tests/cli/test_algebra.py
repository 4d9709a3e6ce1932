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
