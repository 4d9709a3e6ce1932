"""Watermarks and metrics from the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import anabranch as ab
from tests.cli.kit import Line

NOON = "2026-01-31T12:00:00Z"


def note(line: Line) -> ab.StreamCut:
    """A writer has noted noon; the newest event is ten seconds younger. Returns the watermark's cut."""
    with ab.connect(line.store, create=True) as store:
        writer = store.writer("iot/sensors", writer_id="w1")
        writer.write({"device": "a", "at": datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC), "celsius": 1.0})
        writer.note_time(NOON)
        store._forget(writer)  # as if it was killed: it does not end
        mark = store.watermarks.get("iot/sensors")
        assert mark is not None
        return mark.cut


def test_how_long_a_silent_writer_is_waited_for_is_shown_and_said(sensors: Line) -> None:
    assert sensors("watermark", "idle", "iot/sensors").out == "60.0 s\n"
    assert sensors("watermark", "idle", "iot/sensors", "600", "--json").json == {"name": "iot/sensors", "idle_s": 600}
    assert sensors("watermark", "idle", "iot/sensors").out == "0:10:00\n"
    assert "expected idle_s above 0" in sensors.refused("watermark", "idle", "iot/sensors", "0")


def test_watermarks_are_listed(sensors: Line) -> None:
    assert sensors("watermark", "list", "--json").json == []
    assert "no writer has noted a time" in sensors("watermark", "list").err
    cut = note(sensors)
    (row,) = sensors("watermark", "list", "--json").json
    assert (row["name"], row["time"], row["cut"], row["lag_s"]) == ("iot/sensors", NOON, str(cut), 10.0)
    assert row["newest"] == "2026-01-31T12:00:10Z"
    assert row["still_s"] >= 0 and row["advanced_at"].startswith("20")
    (header, shown) = sensors("watermark", "list").out.splitlines()
    assert header.split("  ")[0] == "STREAM"
    assert re.match(rf"iot/sensors +{NOON} +10\.0 s +\S+ s +1 +0$", shown)


def test_a_watermark_is_shown_with_its_writers(sensors: Line) -> None:
    assert sensors("watermark", "show", "iot/sensors", "--json").json["time"] is None
    assert "watermark  -" in sensors("watermark", "show", "iot/sensors").out
    note(sensors)
    (writer,) = sensors("watermark", "show", "iot/sensors", "--json").json["writers"]
    assert (writer["writer"], writer["time"], writer["idle"]) == ("w1", NOON, False)
    shown = sensors("watermark", "show", "iot/sensors").out
    assert "behind     10.0 s   (the newest event: 2026-01-31T12:00:10Z)" in shown
    assert re.search(rf"^  w1 +{NOON} +\S+ +no$", shown, re.MULTILINE)
    assert sensors.refused("watermark", "show", "iot/none") == "stream 'iot/none' not found"


def test_a_group_is_shown_with_the_watermarks_of_its_streams(sensors: Line) -> None:
    with ab.connect(sensors.store, create=True) as store:
        store.groups.open("iot/dash", streams=["iot/sensors"])
    assert sensors("group", "show", "iot/dash", "--json").json["watermarks"] == []
    note(sensors)
    (told,) = sensors("group", "show", "iot/dash", "--json").json["watermarks"]
    assert (told["name"], told["time"], told["lag_s"]) == ("iot/sensors", NOON, 10.0)
    assert re.search(rf"^  iot/sensors +{NOON} +10\.0 s", sensors("group", "show", "iot/dash").out, re.MULTILINE)


def test_metrics_tell_lags_and_watermarks(sensors: Line) -> None:
    note(sensors)
    with ab.connect(sensors.store, create=True) as store:
        store.streams.create("iot/other", tags={})
        store.groups.open("iot/dash", streams=["iot/sensors", "iot/other"])
        store.groups.open("iot/orphan", streams=["iot/other"])
        store.streams.create("iot/gone")
        store.groups.open("iot/lost", streams=["iot/gone"])
        store.streams.delete("iot/gone")  # this group is left out, and the others are told of
    text = sensors("metrics").out
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['anabranch_group_unread_events{group="iot/dash",stream="iot/sensors"}'] == "4"
    assert values['anabranch_group_unread_events{group="iot/dash",stream="iot/other"}'] == "0"
    assert float(values['anabranch_group_unread_bytes{group="iot/dash",stream="iot/sensors"}']) > 0
    assert values['anabranch_group_readers{group="iot/dash"}'] == "0"
    assert values['anabranch_group_unassigned_segments{group="iot/dash"}'] == "2"
    assert values['anabranch_watermark_time_seconds{stream="iot/sensors"}'] == "1769860800"
    assert values['anabranch_watermark_lag_seconds{stream="iot/sensors"}'] == "10"
    assert values['anabranch_watermark_writers{stream="iot/sensors"}'] == "1"
    assert not any("iot/lost" in name for name in values)
    for name in {name.partition("{")[0] for name in values}:  # each metric is told of once, before its values
        assert text.index(f"# TYPE {name} gauge\n") < text.index(f"\n{name}{{")
        assert text.count(f"# HELP {name} ") == 1
    told = sensors("metrics", "--json").json
    assert {"metric": "anabranch_group_readers", "group": "iot/dash", "value": 0} in told
