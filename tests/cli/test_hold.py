"""Ephemeral streams from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.runtime.clock import SystemClock
from anabranch.streams.ephemeral.api import Ephemeral
from tests.cli.kit import Line, column
from tests.waiting import PATIENCE_S, until


def test_hold_makes_a_stream_for_as_long_as_a_command_runs(sensors: Line) -> None:
    script = (
        "import os, anabranch as ab\n"
        "with ab.connect(os.environ['ANABRANCH_STORE'], create=True) as store:\n"
        "    name = os.environ['ANABRANCH_STREAM']\n"
        "    with store.writer(name) as writer:\n"
        "        writer.write({'device': 'a', 'n': 1}).result()\n"
        "    held = store.ephemeral.is_ephemeral(name)\n"
        "    print(name, held, [event.body['n'] for event in store.reader(name)], store.streams.get(name).schema.key)\n"
    )
    done = sensors.process(
        *("stream", "hold", "iot/tmp", "--schema", "device:string, n:int", "--key", "device"),
        *("--", sys.executable, "-c", script),
    )
    assert (done.code, done.out) == (0, "iot/tmp True [1] device\n"), done
    assert "iot/tmp" not in column(sensors("stream", "list", "--json").json, "name")


def test_hold_gives_the_commands_exit_code(sensors: Line) -> None:
    sensors("stream", "hold", "iot/tmp", "--", "sh", "-c", "exit 7", code=7)
    sensors("stream", "hold", "iot/tmp", "--", "sh", "-c", "kill -9 $$", code=128 + 9)
    missing = sensors("stream", "hold", "iot/tmp", "--", "/no/such/command", code=2)
    assert missing.err == "anabranch: /no/such/command: No such file or directory\n"
    assert "iot/tmp" not in column(sensors("stream", "list", "--json").json, "name")


def test_scopes_of_nameless_streams_are_listed_only_if_asked(sensors: Line) -> None:
    with ab.connect(sensors.store, create=True) as store, store.ephemeral.create():
        assert column(sensors("scope", "list", "--json").json, "name") == ["iot"]
        assert column(sensors("scope", "list", "--internal", "--json").json, "name") == ["_ephemeral", "iot"]


def test_hold_refuses_a_permanent_stream(sensors: Line) -> None:
    assert (
        sensors.refused("stream", "hold", "iot/raw")
        == "expected an ephemeral stream, but 'iot/raw' is permanent and needs no holder"
    )


def test_a_held_stream_is_marked_and_shown_with_its_holders_until_it_is_left(sensors: Line) -> None:
    with sensors.start("stream", "hold", "iot/tmp") as holder:
        until_held(sensors, holder, 1)
        rows = sensors("stream", "list", "--json").json
        assert {row["name"]: row["ephemeral"] for row in rows} == {
            "iot/raw": False,
            "iot/sensors": False,
            "iot/tmp": True,
        }
        assert "open, ephemeral" in sensors("stream", "list").out
        (shown,) = sensors("stream", "show", "iot/tmp", "--json").json["holders"]
        assert shown["process"].endswith(f":{holder.pid}") and shown["since"] < shown["until"]
        assert f":{holder.pid}" in sensors("stream", "show", "iot/tmp").out
        assert sensors("stream", "show", "iot/raw", "--json").json["holders"] is None
        with sensors.start("stream", "hold", "iot/tmp") as second:
            until_held(sensors, second, 2)
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert len(sensors("stream", "show", "iot/tmp", "--json").json["holders"]) == 1
        holder.send_signal(signal.SIGINT)
        assert holder.wait(PATIENCE_S) == 130
    assert "iot/tmp" not in column(sensors("stream", "list", "--json").json, "name")


def test_a_signal_that_comes_as_a_stream_is_held_leaves_no_holder_behind(
    sensors: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Ephemeral._held

    def interrupted(self: Ephemeral, result: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return held(self, result)

    monkeypatch.setattr(Ephemeral, "_held", interrupted)
    assert sensors("stream", "hold", "iot/tmp", code=None).code == 130
    assert "iot/tmp" not in column(sensors("stream", "list", "--json").json, "name")


def until_held(sensors: Line, process: subprocess.Popen[bytes], holders: int) -> None:
    """Wait until so many hold the stream, of whom the process is one."""

    def is_held() -> bool:
        assert process.poll() is None
        if "iot/tmp" not in column(sensors("stream", "list", "--json").json, "name"):
            return False
        return len(sensors("stream", "show", "iot/tmp", "--json").json["holders"]) == holders

    until(is_held)


def test_keep_lets_a_stream_last(sensors: Line) -> None:
    keep = [sys.executable, "-m", "anabranch.cli.main", "stream", "keep", "iot/tmp", "--json"]
    done = sensors.process("stream", "hold", "iot/tmp", "--", *keep)
    assert (done.code, json.loads(done.out)) == (0, {"name": "iot/tmp", "ephemeral": False}), done
    assert "iot/tmp" in column(sensors("stream", "list", "--json").json, "name")


def test_collect_removes_what_a_killed_holder_left(sensors: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    with sensors.start("stream", "hold", "iot/tmp") as holder:
        until_held(sensors, holder, 1)
        holder.kill()
    assert sensors("collect", "--json").json["streams"] == 0
    real = SystemClock.now
    later_us = limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US
    monkeypatch.setattr(SystemClock, "now", lambda self: real(self) + later_us)
    assert "1 ephemeral stream removed" in sensors("collect").err
    assert "iot/tmp" not in column(sensors("stream", "list", "--json").json, "name")
