"""What clients do is recorded as it was, across processes and kills."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import ConditionFailed
from tests.simulation.history import Fault, Kind, Operation, Outcome, Stored, check
from tests.simulation.record import RecordedStore, Recorder, load, place_of

STREAM = "s/x"


def kept(store: ab.Store) -> dict[str, Stored]:
    events: dict[str, list[str]] = {}
    with store.reader(STREAM) as reader:
        for event in reader:
            events.setdefault(place_of(event.pointer.stream, event.pointer.segment), []).append(event.body.decode())
    return {place: Stored(0, tuple(names)) for place, names in events.items()}


def client(store: ab.Store, recorder: Recorder, name: str = "c") -> RecordedStore:
    return RecordedStore(store, recorder, name, name_of=lambda stream, payload: payload.decode())


def lived(recorder: Recorder) -> dict[str, Stored]:
    """A stream that is written to, scaled, looked at, fenced and read; what it holds in the end."""
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create(STREAM, scaling=2)
        me = client(store, recorder)
        with me.writer(STREAM, fence=1) as writer:
            pointer = writer.write(b"1", key="a")()
            with pytest.raises(ConditionFailed), me.writer(STREAM) as mistaken:
                mistaken.write(b"no", key="a", expected=7)()
            assert writer.write(b"2", key="a", expected=1)().offset == pointer.offset + 1
            me.look(STREAM)
            me.fence(STREAM, 1)
            store.streams.scale(STREAM, 1)
            writer.write(b"3", key="a")()
        me.look(STREAM)
        with me.read(STREAM) as reader:
            assert [event.body for event in reader] == [b"1", b"2", b"3"]
        return kept(store)


def test_a_store_that_keeps_its_promises_has_a_sound_history() -> None:
    recorder = Recorder(count().__next__)
    stored = lived(recorder)
    assert check(recorder.operations, stored) == []
    assert {operation.kind for operation in recorder.operations} == set(Kind)
    kinds = {(operation.kind, operation.outcome) for operation in recorder.operations}
    assert (Kind.APPEND, Outcome.REFUSED) in kinds


def test_what_was_written_down_is_what_happened() -> None:
    lines: list[str] = []
    recorder = Recorder(count().__next__, name="p", sink=lines.append)
    stored = lived(recorder)
    loaded = load([*lines, lines[-1][:10]])  # the last line was cut off by a kill
    assert list(map(str, loaded)) == list(map(str, recorder.operations))
    assert [(each.segment, each.sealed, each.to_tail, each.unit) for each in loaded] == [
        (each.segment, each.sealed, each.to_tail, each.unit) for each in recorder.operations
    ]
    assert check(loaded, stored) == []
    place = next(iter(stored))
    assert Fault.LOST in {each.fault for each in check(loaded, stored | {place: Stored(0, ())})}


CHILD = """
import os, sys, time
import anabranch as ab
from tests.simulation.record import RecordedStore, Recorder

with open(sys.argv[2], "w", buffering=1) as file, ab.connect(sys.argv[1], create=True) as store:
    me = RecordedStore(store, Recorder(time.monotonic_ns, name=sys.argv[3], sink=file.write), sys.argv[3],
                       name_of=lambda stream, payload: payload.decode())
    with me.writer("s/x") as writer:
        for number in range(20):
            writer.write(f"{sys.argv[3]}.{number}".encode(), key="a")()
        me.look("s/x")
        writer.write(b"last words of " + sys.argv[3].encode(), key="a")
        os.kill(os.getpid(), 9)
"""


def test_killed_processes_leave_a_history_behind(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create(STREAM)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        children = [
            subprocess.Popen(
                [sys.executable, "-c", CHILD, str(tmp_path / "store"), str(tmp_path / name), name], env=environment
            )
            for name in ("p1", "p2")
        ]
        assert [child.wait() for child in children] == [-9, -9]
        mine = Recorder(time.monotonic_ns, name="me")
        me = client(store, mine, "me")
        with me.read(STREAM) as reader:
            assert sum(1 for _ in reader) >= 40
        operations: list[Operation] = [*mine.operations]
        for name in ("p1", "p2"):
            operations += load((tmp_path / name).read_text().splitlines())
        assert sum(each.completed is None for each in operations) == 2
        assert check(operations, kept(store)) == []
