"""Readers of a group are killed with kill -9 and started again while segments split and merge: what an exactly-once reader
makes is there once, complete and in the order of each key; what an at-least-once reader is given misses nothing."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import ReaderNotInGroup
from tests.postgres_server import drop, fresh_url
from tests.process.children import Child, Tell

KEYS = 12
LEASE_S = 0.8


def consume(tell: Tell, store_at: str, blobs: str | None, name: str) -> None:
    """A reader of each group, until there is nothing more to come."""
    with ab.connect(store_at, blobs=blobs) as store:
        plain = threading.Thread(target=again, args=(listen, tell, store.reader_group("s/often"), name))
        plain.start()
        again(copy, tell, store.reader_group("s/once"), name)
        plain.join()
    tell("done")


def again(work: Callable[..., None], tell: Tell, group: ab.ReaderGroup, name: str) -> None:
    """Do as an application does that was taken for dead: open the reader anew."""
    while True:
        try:
            return work(tell, group, name)
        except ReaderNotInGroup:
            tell("refused")


def copy(tell: Tell, group: ab.ReaderGroup, name: str) -> None:
    with group.reader(name, delivery="exactly_once", batch_rows=25) as reader:
        for batch in reader.batches():
            reader.commit({"s/out": pa.table({"key": batch.column("key"), "payload": batch.column("payload")})})


def listen(tell: Tell, group: ab.ReaderGroup, name: str) -> None:
    with group.reader(name) as reader:
        tell("reads")
        for event in reader:
            tell("event", event.body.decode())


@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.parametrize(("catalog", "kills"), [("sqlite", 3), ("postgres", 2)])
def test_killed_readers_lose_and_double_nothing_while_segments_change(catalog: str, kills: int, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    place, blobs = (fresh_url(), str(tmp_path / "blobs")) if catalog == "postgres" else (str(tmp_path / "river"), None)
    try:
        torment(tmp_path, place, blobs, kills, random.Random(seed))
    except BaseException as exc:
        exc.add_note(f"seed {seed}")
        raise
    finally:
        if catalog == "postgres":
            drop(place)


def torment(folder: Path, place: str, blobs: str | None, kills: int, rng: random.Random) -> None:
    with ab.connect(place, blobs=blobs) as store:
        store.streams.create_scope("s")
        store.streams.create("s/in", scaling=3)
        store.streams.create("s/out")
        for name in ("s/once", "s/often"):
            store.reader_group(name, streams=["s/in"], lease_s=LEASE_S)
        children: list[Child] = []

        def start(name: str) -> None:
            children.append(Child(folder, f"{name}-{len(children)}", consume, place, blobs, name))

        for i in range(3):
            start(f"r{i}")
        written = 0
        for kill in range(kills):
            for _ in range(3):
                written = write(store, written, rng.randrange(1, 12))
                time.sleep(0.1 * rng.random())
            store.streams.scale("s/in", rng.randrange(1, 7))
            victim = children.pop(rng.randrange(len(children) - 3, len(children)))  # one of the last three, which live
            victim.wait_for("reads")
            victim.kill()
            children.insert(0, victim)
            # Its name is used again at once, or by nobody, so that its lease has to run out.
            start(rng.choice([victim.name.split("-")[0], f"n{kill}"]))
        written = write(store, written, 1)
        store.streams.seal("s/in")
        for child in children[-3:]:
            assert child.join() == 0, child.lines()[-3:]
        assert made(store) == {key: list(range(written)) for key in range(KEYS)}
        heard = {line[1] for child in children for line in child.lines() if line[0] == "event"}
        assert heard == {f"{key}:{sequence}" for key in range(KEYS) for sequence in range(written)}
        assert store.reader_group("s/once").unread().events == 0
        assert list(store.check()) == []


def write(store: ab.Store, start: int, count: int) -> int:
    with store.writer("s/in") as writer:
        for sequence in range(start, start + count):
            for key in range(KEYS):
                writer.write(f"{key}:{sequence}".encode(), key=f"k{key}")
    return start + count


def made(store: ab.Store) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    with store.reader("s/out") as reader:
        for event in reader:
            key, sequence = event.body.split(b":")
            found[int(key)].append(int(sequence))
    return dict(found)
