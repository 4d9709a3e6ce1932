"""Reader groups from the command line."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.store.groups import Groups
from tests.cli.kit import Line


def make(line: Line) -> None:
    with ab.connect(line.store, create=True) as store:
        group = store.groups.open("iot/dash", streams=["iot/sensors"])
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
    assert "scope 'none' not found" in sensors.refused("group", "list", "none")


def test_a_group_that_is_deleted_meanwhile_is_not_listed(sensors: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    make(sensors)
    monkeypatch.setattr(Groups, "list", lambda *_, **__: ["iot/dash", "iot/gone"])
    assert [row["name"] for row in sensors("group", "list", "--json").json] == ["iot/dash"]


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
    with ab.connect(sensors.store, create=True) as store, store.groups.open("iot/dash").reader("r1"):
        (segment,) = sensors("group", "show", "iot/dash", "--json").json["distribution"]
    assert segment["reader"] == "r1"
    assert sensors.refused("group", "show", "iot/none") == "reader group 'iot/none' not found"


def test_a_group_is_reset_to_a_checkpoint_a_place_or_its_start(sensors: Line) -> None:
    make(sensors)
    for place, unread in (("start", 3), ("c1", 2), ("tail", 0), ("head", 3), ("-1h", 3)):
        told = sensors("group", "reset", "iot/dash", "--to", place, "--yes", "--json").json
        assert told["unread"] == unread, place
    assert "3 events to read" in sensors("group", "reset", "iot/dash", "--to", "start", "--yes").err
    assert "kept: c1" in sensors.refused("group", "reset", "iot/dash", "--to", "c9", "--yes")


def test_a_group_is_reset_to_its_last_checkpoint_and_to_other_streams_and_ends(sensors: Line) -> None:
    make(sensors)
    sensors("group", "reset", "iot/dash", "--to", "tail", "--yes")
    assert sensors("group", "reset", "iot/dash", "--yes", "--json").json["unread"] == 2
    sensors("stream", "create", "iot/more")
    told = sensors(
        "group", "reset", "iot/dash", "--to", "head", "--stream", "iot/more", "--stream", "iot/sensors", "--end", "tail",
        "--yes", "--json",
    ).json  # fmt: skip
    assert (told["streams"], told["unread"]) == (["iot/more", "iot/sensors"], 3)
    shown = sensors("group", "show", "iot/dash", "--json").json
    assert list(shown["checkpoints"][0]["cuts"]) == ["iot/sensors"]
    assert "--to start" in sensors.refused("group", "reset", "iot/dash", "--to", "start", "--end", "none", "--yes")
    assert "takes neither" in sensors.refused("group", "reset", "iot/dash", "--to", "start", "--stream", "iot/sensors")


def test_a_group_whose_stream_was_deleted_hides_no_other_and_can_be_deleted(sensors: Line) -> None:
    make(sensors)
    with ab.connect(sensors.store, create=True) as store:
        store.groups.open("iot/other", streams=["iot/raw"])
        store.streams.delete("iot/sensors")
    rows = sensors("group", "list", "--json").json
    assert [(row["name"], row["unread"]) for row in rows] == [("iot/dash", None), ("iot/other", 0)]
    assert "(deleted)" in sensors("group", "list").out
    assert "was deleted" in sensors.refused("group", "show", "iot/dash")
    sensors("group", "delete", "iot/dash", "--yes")
    assert [row["name"] for row in sensors("group", "list", "--json").json] == ["iot/other"]


def test_a_deleted_group_leaves_its_streams(sensors: Line) -> None:
    make(sensors)
    sensors("group", "delete", "iot/dash", "--yes")
    assert sensors("group", "list", "--json").json == []
    assert "not found" in sensors.refused("group", "delete", "iot/dash")
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 3


def test_a_group_is_named_as_a_subscriber_and_shown_with_what_is_kept_for_it(sensors: Line) -> None:
    make(sensors)
    kept = sensors(
        "stream", "retain", "iot/sensors", "--group", "iot/dash", "--group", "iot/later", "--for", "30d", "--yes"
    )
    assert kept.out.splitlines()[0] == "kept until read by iot/dash, iot/later, at most for 30d"
    assert "reading" in kept.out and "not created" in kept.out
    told = sensors("stream", "retain", "iot/sensors", "--now", "--json").json
    assert told["removed"]["events"] == 0  # nobody has made the other group yet
    assert [(each["group"], each["state"], each["kept"]) for each in told["subscribers"]] == [
        ("iot/dash", "reading", 2),
        ("iot/later", "not created", 3),
    ]
    assert "until read by iot/dash, iot/later" in sensors("stream", "show", "iot/sensors").out
    sensors("stream", "retain", "iot/sensors", "--group", "iot/dash", "--checkpointed", "--at-least-for", "0s", "--yes")
    assert sensors("stream", "truncate", "iot/sensors", "--consumed", "--yes", "--json").json["removed"] == 1
    assert sensors("stream", "truncate", "iot/sensors", "--consumed", "--at", "tail", "--yes").err.startswith(
        "0 events"
    )
    (subscription,) = sensors("group", "show", "iot/dash", "--json").json["subscriptions"]
    assert (subscription["stream"], subscription["kept"], subscription["passed"]) == ("iot/sensors", 2, 0)
    assert "STATE" in sensors("group", "show", "iot/dash").out
    sensors("stream", "create", "iot/new", "--retain-group", "iot/dash2", "--retain-for", "7d")
    assert "until read by iot/dash2, at most for 7d" in sensors("stream", "retain", "iot/new").out
    assert "does not read" in sensors.refused("stream", "retain", "iot/raw", "--group", "iot/dash", "--yes")
    assert "at least one --group" in sensors.refused("stream", "retain", "iot/raw", "--for", "1d", "--checkpointed")
    assert "no reader group" in sensors.refused("stream", "truncate", "iot/raw", "--consumed", "--yes")


def test_a_group_that_was_passed_is_reported_by_retain_show_and_metrics(sensors: Line) -> None:
    make(sensors)
    sensors("stream", "retain", "iot/sensors", "--group", "iot/dash", "--for", "0s", "--yes")
    report = sensors("retain").err
    assert report.splitlines()[1].startswith("reader group 'iot/dash' lags and was passed: 2 events")
    (subscription,) = sensors("group", "show", "iot/dash", "--json").json["subscriptions"]
    assert (subscription["kept"], subscription["passed"]) == (0, 2)
    assert subscription["passed_bytes"] > 0 and subscription["passed_at"] is not None
    assert sensors("retain", "--json").json["passed"] == []
    metrics = sensors("metrics").out
    assert 'anabranch_subscriber_passed_events{group="iot/dash",stream="iot/sensors"} 2' in metrics
    assert 'anabranch_subscriber_kept_events{group="iot/dash",stream="iot/sensors"} 0' in metrics
