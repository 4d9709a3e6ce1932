"""Readers of groups and writers are killed with kill -9 and started again while segments split and merge and keys are renewed.

The oracle: an event is `key:sequence`, so what is stored of a key must be 0, 1, 2 … without a hole. Of that, what an
exactly-once reader makes is there once, complete and in order; what an at-least-once reader is given misses nothing; what an
at-most-once reader is given comes never twice, in order, and misses no more than the killed had in hand."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import ReaderNotInGroup
from tests.parameters import rest_is_slow
from tests.postgres_server import drop, fresh_url
from tests.process.children import Child, Tell
from tests.waiting import until

KEYS = 6  # of a writer at a time
LEASE_S = 0.8
IN_HAND = 5  # events that an at-most-once reader takes at once
Events = dict[str, list[int]]


def produce(tell: Tell, store_at: str, blobs: str | None, name: str, stop: str, seed: int) -> None:
    """Write on from where the last writer of this name stopped, until the file `stop` is there."""
    rng = random.Random(seed)
    with ab.connect(store_at, blobs=blobs, create=True) as store, store.writer("s/in", writer_id=name) as writer:
        # The name was taken over, so nothing of the former owner lands any more, and what is there now is all there is.
        stored = {key: len(found) for key, found in events_of(store, "s/in").items() if key.startswith(f"{name}.")}
        generations = [
            max([0, *(int(key.split(".")[2]) for key in stored if key.split(".")[1] == str(i))]) for i in range(KEYS)
        ]
        tell("writes")
        renew_first = True
        while not Path(stop).exists():
            acks = []
            for i in range(KEYS):
                # The first key is renewed by each writer, so that a run renews one whatever its seed.
                if rng.random() < 0.05 or (renew_first and i == 0):
                    generations[i] += 1
                key = f"{name}.{i}.{generations[i]}"
                for _ in range(rng.choice((1, 1, 3))):
                    sequence = stored[key] = stored.get(key, 0) + 1
                    acks.append((key, sequence - 1, writer.write(f"{key}:{sequence - 1}".encode(), key=key)))
            for key, sequence, ack in acks:
                ack.result()
                tell("wrote", f"{key}:{sequence}")
            renew_first = False
            time.sleep(0.03)
    tell("done")


def consume(tell: Tell, store_at: str, blobs: str | None, name: str) -> None:
    """A reader of each group, until there is nothing more to come."""
    with ab.connect(store_at, blobs=blobs, create=True) as store:
        works = [(listen, "s/often"), (take, "s/rarely")]
        threads = [threading.Thread(target=again, args=(work, tell, store.groups.open(g), name)) for work, g in works]
        for thread in threads:
            thread.start()
        again(copy, tell, store.groups.open("s/once"), name)
        for thread in threads:
            thread.join()
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


def take(tell: Tell, group: ab.ReaderGroup, name: str) -> None:
    with group.reader(name, delivery="at_most_once", batch_rows=IN_HAND) as reader:
        for event in reader:
            tell("take", event.body.decode())


@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.parametrize(("catalog", "kills"), rest_is_slow([("postgres", 2), ("sqlite", 3)]))
def test_killed_readers_and_writers_lose_and_double_nothing_while_segments_change(
    catalog: str, kills: int, tmp_path: Path, seed: int
) -> None:
    place, blobs = (fresh_url(), str(tmp_path / "blobs")) if catalog == "postgres" else (str(tmp_path / "river"), None)
    try:
        kill_readers_and_writers(tmp_path, place, blobs, kills, random.Random(seed))
    finally:
        if catalog == "postgres":
            drop(place)


def kill_readers_and_writers(folder: Path, place: str, blobs: str | None, kills: int, rng: random.Random) -> None:
    stop = folder / "stop"
    with ab.connect(place, blobs=blobs, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/in", scaling=3)
        store.streams.create("s/out")
        for name in ("s/once", "s/often", "s/rarely"):
            store.groups.open(name, streams=["s/in"], lease_s=LEASE_S)
        readers: list[Child] = []
        writers: list[Child] = []

        def read(name: str) -> None:
            readers.append(Child(folder, f"{name}-{len(readers)}", consume, place, blobs, name))

        def write(name: str) -> None:
            seed = rng.randrange(1 << 32)
            writers.append(Child(folder, f"{name}-{len(writers)}", produce, place, blobs, name, str(stop), seed))

        write("w")
        for i in range(3):
            read(f"r{i}")
        for kill in range(kills):
            writers[-1].wait_for("wrote")
            time.sleep(0.3 * rng.random())
            store.streams.scale("s/in", rng.randrange(1, 7))
            victim = readers.pop(rng.randrange(len(readers) - 3, len(readers)))  # one of the last three, which live
            victim.wait_for("reads")
            victim.kill()
            readers.insert(0, victim)
            # Its name is used again at once, or by nobody, so that its lease has to run out.
            read(rng.choice([victim.name.split("-")[0], f"n{kill}"]))
            writers[-1].kill()
            write("w")
        writers[-1].wait_for("wrote")
        stop.touch()
        assert writers[-1].join() == 0, writers[-1].lines()[-3:]
        store.streams.seal("s/in")
        for child in readers[-3:]:
            assert child.join() == 0, child.lines()[-3:]
        judge(store, readers, writers, kills)


def judge(store: ab.Store, readers: list[Child], writers: list[Child], kills: int) -> None:
    stored = events_of(store, "s/in")
    assert stored == {key: list(range(len(found))) for key, found in stored.items()}
    everything = {f"{key}:{sequence}" for key, found in stored.items() for sequence in found}
    assert said(writers, "wrote") <= everything
    assert len(stored) > KEYS, "keys were renewed"

    assert events_of(store, "s/out") == stored
    assert store.groups.open("s/once").unread().events == 0

    assert said(readers, "event") == everything

    taken = [line[1] for child in readers for line in child.lines() if line[0] == "take"]
    assert len(taken) == len(set(taken))
    for child in readers:
        assert_rising([line[1] for line in child.lines() if line[0] == "take"])
    refused = sum(line[0] == "refused" for child in readers for line in child.lines())
    assert len(everything) - len(taken) <= IN_HAND * (kills + refused)
    assert list(store.check()) == []


def said(children: list[Child], word: str) -> set[str]:
    return {line[1] for child in children for line in child.lines() if line[0] == word}


def assert_rising(told: list[str]) -> None:
    """Of each key, in order."""
    last: dict[str, int] = {}
    for event in told:
        key, sequence = event.split(":")
        assert int(sequence) > last.get(key, -1), event
        last[key] = int(sequence)


def events_of(store: ab.Store, stream: str) -> Events:
    """The sequence of each key, as it is stored."""
    found: Events = defaultdict(list)
    with store.reader(stream) as reader:
        for event in reader:
            key, sequence = event.body.decode().split(":")
            assert event.key == key
            found[key].append(int(sequence))
    return dict(found)


def read_on(tell: Tell, store_at: str, name: str, go: str) -> None:
    """Read until it is stopped, but nothing before the file `go` is there; then leave in order."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ab.connect(store_at, create=True) as store, store.groups.open("s/g").reader(name) as reader:
        tell("reads")
        while not Path(go).exists():
            time.sleep(0.01)
        for event in reader:
            tell("event", event.body.decode())


@pytest.mark.process
def test_processes_are_started_and_stopped_with_the_lag_and_read_everything(tmp_path: Path) -> None:
    place, go = str(tmp_path / "river"), tmp_path / "go"
    with ab.connect(place, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/in", scaling=4)
        with store.writer("s/in") as writer:
            for number in range(300):
                writer.write(b"%d" % number, key=str(number))
        group = store.groups.open("s/g", streams=["s/in"], lease_s=600)
        children: dict[str, Child] = {}

        def launch(name: str) -> None:
            children[name] = Child(tmp_path, name, read_on, place, name, str(go))

        def stop(name: str) -> None:
            children[name].send(signal.SIGTERM)

        with group.elastic(launch, stop, readers_max=3, events_per_reader=100, every_s=0.05) as readers:
            until(lambda: len(group.readers) == 3)
            assert group.readers == sorted(readers.running)
            go.touch()
            until(lambda: len(readers.running) == 1 and group.unread().events == 0)
            until(lambda: group.readers == readers.running)
        assert [child.join() for child in children.values()] == [0] * len(children)
        assert said(list(children.values()), "event") == {str(number) for number in range(300)}
        assert group.readers == []
