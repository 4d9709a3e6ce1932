"""Ephemeral streams that real processes hold, one of which is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.model.ids import Micros
from anabranch.runtime.clock import SystemClock
from tests.clocks import runtime_by
from tests.process.children import Child, Tell

pytestmark = pytest.mark.process


class Later(SystemClock):
    """The time when a holder that was just killed is waited for no more."""

    def now(self) -> Micros:
        return Micros(super().now() + limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US)


def hold(tell: Tell, place: str, blobs: Path, leave: Path) -> None:
    """Hold a stream, begun if need be, and write to it, until the file `leave` is there."""
    with ab.connect(place, blobs=blobs, create=True) as store:
        held = store.ephemeral.hold("s/tmp") if store.streams.exists("s/tmp") else store.ephemeral.create("s/tmp")
        with held, store.writer("s/tmp") as writer:
            writer.write(b"x" * 100_000).result()
            tell("holding", held.id)
            while not leave.exists():
                store.runtime.tasks.sleep(0.005)
        tell("left")


def test_a_stream_outlives_a_killed_holder_for_another_and_then_goes(place: str, tmp_path: Path) -> None:
    blobs, leave = tmp_path / "blobs", tmp_path / "leave"
    later = runtime_by(Later())
    with (
        ab.connect(place, blobs=blobs, create=True) as store,
        ab.connect(place, blobs=blobs, runtime=later, create=True) as upkeep,
    ):
        store.scopes.create("s")
        first = Child(tmp_path, "first", hold, place, blobs, leave)
        first.wait_for("holding")
        second = Child(tmp_path, "second", hold, place, blobs, leave)
        second.wait_for("holding")
        assert first.lines() == second.lines()
        first.kill()
        assert len(store.ephemeral.holders("s/tmp")) == 2
        assert store.collect().streams == 0
        assert store.streams.exists("s/tmp")
        leave.touch()
        assert second.join() == 0
        assert store.streams.exists("s/tmp")  # the first may be at work, as far as anybody knows
        assert upkeep.collect().streams == 1
        assert not store.streams.exists("s/tmp")
        for _ in range(2):
            upkeep.collect(horizon_us=0)
        assert list(upkeep.blobs.list()) == []
        assert list(upkeep.check()) == []


def test_a_stream_goes_with_its_last_holder_though_another_was_killed_long_ago(place: str, tmp_path: Path) -> None:
    blobs, leave = tmp_path / "blobs", tmp_path / "leave"
    with ab.connect(place, blobs=blobs, runtime=runtime_by(Later()), create=True) as store:
        store.scopes.create("s")
        first = Child(tmp_path, "first", hold, place, blobs, leave)
        first.wait_for("holding")
        first.kill()
        with store.ephemeral.hold("s/tmp"):
            assert store.collect().streams == 0
        assert not store.streams.exists("s/tmp")
