"""What the children of these tests do, and how they are started and stopped.

Children come from a server that has loaded everything before it forks, so that starting hundreds of them is cheap. What a
child is told it tells on at once, a line per call of `write(2)`, so that nothing it said is lost when it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.runtime.settings import Settings
from tests.waiting import PATIENCE_S

_NURSERY = multiprocessing.get_context("forkserver")
_NURSERY.set_forkserver_preload(
    ["__main__", "anabranch.store", "pandas", "pyarrow.pandas_compat", "pyarrow.parquet", __name__]
)

Work = Callable[..., None]


class Child:
    """A process that does `work(tell, *arguments)`."""

    def __init__(self, folder: Path, name: str, work: Work, *arguments: Any) -> None:
        self.name = name
        self.told = folder / f"{name}.told"
        self.told.touch()
        self._process = _NURSERY.Process(target=_live, args=(work, self.told, arguments), name=name, daemon=True)
        self._process.start()

    def lines(self) -> list[list[str]]:
        """What it told so far, as words: all lines that are complete."""
        whole, _, _ = self.told.read_text().rpartition("\n")
        return [line.split() for line in whole.splitlines()]

    def said(self, word: str) -> int:
        """How many lines begin with the word."""
        return sum(line[:1] == [word] for line in self.lines())

    def wait_for(self, word: str, times: int = 1) -> None:
        """Wait until so many lines begin with the word."""
        deadline = time.monotonic() + PATIENCE_S
        while self.said(word) < times:
            assert self._process.is_alive() or self.said(word) >= times, f"{self.name} died"
            assert time.monotonic() < deadline, f"{self.name} never said {word}: {self.told.read_text()[-2_000:]}"
            time.sleep(0.005)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._process.join()

    def send(self, number: int) -> None:
        """A signal, unless it has ended."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def join(self) -> int | None:
        """Its exit code, once it has ended."""
        self._process.join(PATIENCE_S)
        assert not self._process.is_alive(), f"{self.name} does not end: {self.told.read_text()[-2_000:]}"
        return self._process.exitcode


def _live(work: Work, told: Path, arguments: tuple[Any, ...]) -> None:
    file = os.open(told, os.O_WRONLY | os.O_APPEND)

    def tell(*words: object) -> None:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())

    try:
        work(tell, *arguments)
    except BaseException as exc:
        tell("raised", type(exc).__name__, str(exc).replace("\n", " "))
        raise


Tell = Callable[..., None]
KEYS = 4


def pour(
    tell: Tell,
    store_at: Path | str,
    stream: str,
    name: str,
    seed: int,
    stop: Path | None = None,
    blobs: str | None = None,
) -> None:
    """Write until the file `stop` is there: single events, batches, small and large, many at a time; tell each
    acknowledgement in order. The body of an event is `name number`; its key is one of a few, by the number."""
    rng = random.Random(seed)
    settings = Settings(commit_bytes_max=200_000, pipeline_bytes_min=20_000, catalog_lock_s=120)
    with ab.connect(store_at, blobs=blobs, settings=settings, create=True) as store, store.writer(stream) as writer:
        tell("ready")
        pending: deque[tuple[int, Callable[[], ab.EventPointer]]] = deque()
        number = 0
        while stop is None or not stop.exists():
            count = rng.choice((1, 1, 1, 3, 40))
            padding = b" " * rng.choice((0, 0, 0, 5_000))
            bodies = [b"%s %d" % (name.encode(), number + i) + padding for i in range(count)]
            keys = [key_of(name, number + i) for i in range(count)]
            if count == 1:
                pending.append((number, writer.write(bodies[0], key=keys[0]).result))
            else:
                ack = writer.write_batch(pa.table({"key": keys, "payload": bodies}), atomic=rng.random() < 0.3)
                pending.extend((number + i, _pointer(ack, i)) for i in range(count))
            number += count
            while len(pending) > rng.choice((0, 20, 100)):
                done, result = pending.popleft()
                tell("ack", done, result())
        for done, result in pending:
            tell("ack", done, result())
    tell("done")


def _pointer(ack: ab.BatchAck, row: int) -> Callable[[], ab.EventPointer]:
    return lambda: ack.pointer(row)


def key_of(name: str, number: int) -> str:
    return f"{name}/{number % KEYS}"


def stored(store: ab.Store, stream: str) -> Iterator[tuple[str, int, ab.EventPointer]]:
    """What `pour` wrote, in reading order: name, number, pointer. Each event's key is looked at on the way."""
    with store.reader(stream) as reader:
        for event in reader:
            name, number = event.body.split()
            assert event.key == key_of(name.decode(), int(number))
            yield name.decode(), int(number), event.pointer


def verify(store: ab.Store, stream: str, children: list[Child]) -> tuple[int, int]:
    """Every acknowledged event is there once, at its pointer; of each key there is a beginning without holes, in order.
    Returns how many events were acknowledged, and how many are there."""
    told = [(child, child.lines()) for child in children]  # before reading: some still write
    found: dict[tuple[str, int], ab.EventPointer] = {}
    latest: dict[str, int] = {}
    for name, number, pointer in stored(store, stream):
        assert (name, number) not in found, f"{name} {number} is there twice"
        found[name, number] = pointer
        key = key_of(name, number)
        follows = latest[key] + KEYS if key in latest else number % KEYS
        assert number == follows, f"of key {key}, {number} stands where {follows} should"
        latest[key] = number
    acknowledged = 0
    for child, lines in told:
        for word, *rest in lines:
            assert word in ("ready", "ack", "done"), f"{child.name}: {word} {rest}"
            if word == "ack":
                acknowledged += 1
                where = found.get((child.name, int(rest[0])))
                assert where is not None, f"{child.name} {rest[0]} was acknowledged, and is not there"
                assert str(where) == rest[1], f"{child.name} {rest[0]} is not where its acknowledgement said"
    return acknowledged, len(found)
