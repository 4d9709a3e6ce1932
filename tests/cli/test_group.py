"""Reader groups from the command line."""

from __future__ import annotations

import anabranch as ab
from tests.cli.kit import Line


def make(line: Line) -> None:
    with ab.connect(line.store) as store:
        group = store.reader_group("iot/dash", streams=["iot/sensors"])
        with group.reader("r1") as reader:
            next(iter(reader))
        group.checkpoint("c1")


def test_groups_are_listed_with_what_they_have_to_read(sensors: Line) -> None:
    assert sensors("group", "list", "--json").json == []
    make(sensors)
    (row,) = sensors("group", "list", "iot", "--json").json
    assert (row["name"], row["streams"], row["readers"], row["unread"]) == ("iot/dash", ["iot/sensors"], [], 2)
    assert row["unread_bytes"] > 0 and row["segments"] == 1
    assert "iot/dash" in sensors("group", "list").out
    assert "no scope 'none'" in sensors.refused("group", "list", "none")


def test_a_group_is_shown_with_readers_segments_and_checkpoints(sensors: Line) -> None:
    make(sensors)
    told = sensors("group", "show", "iot/dash", "--json").json
    (segment,) = told["distribution"]
    assert (segment["stream"], segment["segment"], segment["reader"]) == ("iot/sensors", "0.0", None)
    assert (segment["offset"], segment["unread"]) == (1, 2)
    assert [each["name"] for each in told["checkpoints"]] == ["c1"]
    assert told["cuts"] == told["checkpoints"][0]["cuts"]
    text = sensors("group", "show", "iot/dash").out
    assert "CHECKPOINT" in text and "2 events" in text
    with ab.connect(sensors.store) as store, store.reader_group("iot/dash").reader("r1"):
        (segment,) = sensors("group", "show", "iot/dash", "--json").json["distribution"]
    assert segment["reader"] == "r1"
    assert sensors.refused("group", "show", "iot/none") == "there is no reader group 'iot/none'"


def test_a_group_is_reset_to_a_checkpoint_a_place_or_its_start(sensors: Line) -> None:
    make(sensors)
    for place, unread in (("start", 3), ("c1", 2), ("tail", 0), ("head", 3), ("-1h", 3)):
        told = sensors("group", "reset", "iot/dash", "--to", place, "--json").json
        assert told["unread"] == unread, place
    assert "3 events to read" in sensors("group", "reset", "iot/dash", "--to", "start").err
    assert "kept: c1" in sensors.refused("group", "reset", "iot/dash", "--to", "c9")


def test_a_group_whose_stream_was_deleted_hides_no_other_and_can_be_deleted(sensors: Line) -> None:
    make(sensors)
    with ab.connect(sensors.store) as store:
        store.reader_group("iot/other", streams=["iot/raw"])
        store.streams.delete("iot/sensors")
    rows = sensors("group", "list", "--json").json
    assert [(row["name"], row["unread"]) for row in rows] == [("iot/dash", None), ("iot/other", 0)]
    assert "(deleted)" in sensors("group", "list").out
    assert "no stream" in sensors.refused("group", "show", "iot/dash")
    sensors("group", "delete", "iot/dash", "--yes")
    assert [row["name"] for row in sensors("group", "list", "--json").json] == ["iot/other"]


def test_a_deleted_group_leaves_its_streams(sensors: Line) -> None:
    make(sensors)
    sensors("group", "delete", "iot/dash", "--yes")
    assert sensors("group", "list", "--json").json == []
    assert "no reader group" in sensors.refused("group", "delete", "iot/dash")
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 3
