"""kill -9 at random moments: what was acknowledged is there once, in order, and nothing is left in the way."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import anabranch as ab
from tests.process.children import Child, pour, verify

AT_ONCE = 4
ACKNOWLEDGED = 10  # events, of every second child at least


@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path, kills: int, seed: int) -> None:
    folder, rng = tmp_path, random.Random(seed)
    river = folder / "river"
    with ab.connect(river, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/all", scaling=2)
        children: list[Child] = []
        living: list[tuple[float, Child]] = []  # not before when to kill whom
        killed = 0
        while killed < kills or living:
            while len(living) < AT_ONCE and killed + len(living) < kills:
                name = f"child-{len(children)}"
                child = Child(folder, name, pour, river, "s/all", name, rng.randrange(1 << 32))
                children.append(child)
                # Some die while they open the store, most while they write.
                living.append((time.monotonic() + rng.choice((0.05, 0.3, 0.6, 1.2)) * rng.random(), child))
            living.sort(key=lambda each: each[0])
            due, child = living.pop(0)
            time.sleep(max(0.0, due - time.monotonic()))
            if killed % 2:  # on a machine however slow
                child.wait_for("ack", ACKNOWLEDGED)
                time.sleep(0.02 * rng.random())
            child.kill()
            killed += 1
            if killed % 5 == 0:
                store.streams.scale("s/all", rng.choice((1, 2, 3, 5)))
            if killed % 50 == 0:
                verify(store, "s/all", children)
        acknowledged, there = verify(store, "s/all", children)
        assert there >= acknowledged >= ACKNOWLEDGED * kills // 2
        assert list(store.check()) == []
        store.compact(force=True)
        assert verify(store, "s/all", children) == (acknowledged, there)
    with ab.connect(river, create=True) as store, store.writer("s/all") as writer:  # nobody left a lock behind
        writer.write(b"the-end 0", key="the-end/0").result()
        assert list(store.check()) == []
