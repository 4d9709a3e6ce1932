"""A process into whose main thread exceptions are thrown, at every place in the store's code, one after the other; see
`test_thrown.py`. Arguments: the operation, a folder, how (`signal` or `thread`), and how many places lie between two throws."""

from __future__ import annotations

import collections
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.errors import AnabranchError
from tests.interrupted import resumes

OURS = str(Path(ab.__file__).parent)
HANG_S = 60.0


class Soft(Exception):
    """A time limit of the host."""


def raise_soft(*_: object) -> None:
    raise Soft


def by_signal() -> None:
    signal.raise_signal(signal.SIGUSR1)


def by_thread() -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(Soft))


class Throw:
    """Does work, with an exception at the `at`-th place where the interpreter may deliver one."""

    def __init__(self, at: int, how: Callable[[], None]) -> None:
        self._at = at
        self._how = how
        self.places = 0

    def __call__(self, work: Callable[[], object]) -> None:
        sys.setprofile(self._look)
        try:
            work()
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(OURS) and not resumes(frame, event):
            self.places += 1
            if self.places == self._at + 1:
                self._how()


class Run:
    """One store, and what was acknowledged in it."""

    def __init__(self, store: ab.Store) -> None:
        self.store = store
        self.writer = store.writer("s/a")
        self.acked: list[str] = []
        self.number = 0

    def name(self, size: int = 0) -> tuple[str, bytes]:
        self.number += 1
        name = f"e{self.number}"
        return name, name.encode() + b"." * size

    def write(self) -> None:
        name, body = self.name()
        self.writer.write(body, key="k").result()
        self.acked.append(name)

    def write_large(self) -> None:
        name, body = self.name(100_000)
        self.writer.write(body, key="k").result()
        self.acked.append(name)

    def write_batch(self) -> None:
        name, body = self.name()
        self.writer.write_batch(pa.table({"key": ["k"], "payload": [body]})).result()
        self.acked.append(name)

    def flush(self) -> None:
        name, body = self.name()
        self.writer.write(body, key="k")
        self.writer.flush()
        self.acked.append(name)

    def close(self) -> None:
        name, body = self.name()
        with self.store.writer("s/a") as writer:
            writer.write(body, key="k")
        self.acked.append(name)

    def transaction(self) -> None:
        name, body = self.name()
        with self.store.transaction() as txn:
            txn.writer("s/a").write(body, key="k")
            txn.flush()
        self.acked.append(name)

    def read(self) -> None:
        with self.store.reader("s/a") as reader:
            for _ in zip(range(3), reader, strict=False):
                pass


def main(operation: str, folder: str, how: str, stride: str) -> None:
    signal.signal(signal.SIGUSR1, raise_soft)
    beat = [time.monotonic()]

    def watch() -> None:
        while True:
            time.sleep(1)
            if time.monotonic() - beat[0] > HANG_S:
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)

    threading.Thread(target=watch, daemon=True).start()
    strike = by_signal if how == "signal" else by_thread
    store = ab.connect(folder, create=True)
    store.scopes.create("s")
    store.streams.create("s/a")
    run = Run(store)
    run.write()
    at = thrown = refused = 0
    misreported: list[str] = []
    while True:
        throw = Throw(at, strike)
        for attempt in (lambda throw=throw: throw(getattr(run, operation)), run.write):
            try:
                attempt()
            except Soft:
                thrown += 1
            except AnabranchError as exc:
                refused += 1
                if Soft.__name__ in str(exc):
                    misreported.append(f"place {at}: {exc!r}")
        run.write()  # it goes on
        beat[0] = time.monotonic()
        if throw.places <= at:
            break
        at += int(stride)
    assert signal.getsignal(signal.SIGUSR1) is raise_soft
    try:
        store.close()
    except AnabranchError:
        refused += 1
    with ab.connect(folder, create=True) as again, again.reader("s/a") as reader:
        found = collections.Counter(event.body.split(b".")[0].decode() for event in reader)
        lost = [name for name in run.acked if name not in found]
        twice = [name for name, count in found.items() if count > 1]
        assert (lost, twice) == ([], []), (lost, twice)
        assert list(again.check()) == []
    print(f"thrown {thrown}, refused {refused}, acknowledged {len(run.acked)}")
    assert thrown > 30 // int(stride)
    assert not misreported, misreported


if __name__ == "__main__":
    main(*sys.argv[1:])
