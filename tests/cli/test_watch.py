"""`anabranch watch`: what happens to a stream, as lines and as JSON, while it happens and afterwards."""

from __future__ import annotations

import json
import signal

import anabranch as ab
from tests.cli.kit import Line
from tests.waiting import PATIENCE_S


def prepare(line: Line) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/a", "--segments", "2")


def test_what_happens_is_shown_while_it_happens(line: Line) -> None:
    prepare(line)
    process = line.start("watch", "iot/a", "--json")
    assert process.stdout is not None
    try:
        first = json.loads(process.stdout.readline())
        line("stream", "scale", "iot/a", "--segments", "3")
        line("stream", "seal", "iot/a")
        told = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.communicate()
    assert (first["kind"], first["stream"], first["segments"]) == ("present", "iot/a", 2)
    assert [(each["kind"], each["segments"]) for each in told] == [("scaled", 3), ("sealed", None)]
    assert first["id"] < told[0]["id"] < told[1]["id"]


def test_what_happened_is_shown_afterwards(line: Line) -> None:
    prepare(line)
    line("stream", "scale", "iot/a", "--segments", "3")
    done = line("watch", "iot/a", "--from", "head", "--no-follow")
    created, scaled = done.out.splitlines()
    assert "created" in created
    assert "iot/a  3 segments  created=1.2,1.3,1.4 epoch=1 sealed=0.0,0.1" in scaled


def test_without_a_stream_the_whole_store_is_watched(line: Line) -> None:
    prepare(line)
    told = line("watch", "--from", "head", "--no-follow", "--json").rows
    assert [(each["kind"], each["stream"]) for each in told] == [("scope created", None), ("created", "iot/a")]


def test_so_many_are_shown_as_were_asked_for(line: Line) -> None:
    prepare(line)
    assert len(line("watch", "iot/a", "--limit", "1").out.splitlines()) == 1


def test_a_stream_that_is_not_there_is_one_clear_line(line: Line) -> None:
    prepare(line)
    assert "iot/nowhere" in line.refused("watch", "iot/nowhere")


def test_the_watermark_is_shown(line: Line) -> None:
    prepare(line)
    assert line("stream", "watermark", "iot/a", "--json").json == {"name": "iot/a", "time": None, "cut": None}
    assert "no watermark" in line("stream", "watermark", "iot/a").err
    with ab.connect(line.store, create=True) as store:
        group = store.groups.open("iot/g", streams=["iot/a"])
        with store.writer("iot/a") as writer:
            writer.write(b"x", time="2026-01-31T11:59:00Z")
            writer.note_time("2026-01-31T12:00:00Z")
        mark = store.watermarks.get("iot/a")
        assert mark is not None
        group.reset(ab.TAIL)
    assert line("stream", "watermark", "iot/a").out == f"2026-01-31T12:00:00Z  {mark.cut}\n"
    assert line("read", "iot/a", "--to", mark.cut, "--json").rows[0]["payload"] == "x"
    told = line("group", "show", "iot/g", "--json").json
    assert told["time_window"] == {"lower": "2026-01-31T12:00:00Z", "upper": None}
    assert "times    2026-01-31T12:00:00Z to -" in line("group", "show", "iot/g").out
