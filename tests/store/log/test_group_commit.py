"""Who commits: the caller who waits, or a worker; never nobody."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import StoreUnavailable
from anabranch.log.appender import Appender
from anabranch.log.commit import Committer
from anabranch.writing.queue import WriterQueue
from tests.waiting import PATIENCE_S, until, until_ended


def _store(folder: Path) -> ab.Store:
    store = ab.connect(folder, create=True)
    store.scopes.create("s")
    store.streams.create("s/a")
    return store


def test_an_event_that_nobody_waits_for_becomes_durable_beside_callers_who_wait(tmp_path: Path) -> None:
    ends = threading.Event()

    def wait_for_each(writer: ab.Writer) -> None:
        while not ends.is_set():
            writer.write(b"awaited").result()

    with _store(tmp_path) as store, store.writer("s/a") as patient, store.writer("s/a") as hasty:
        callers = [threading.Thread(target=wait_for_each, args=(patient,)) for _ in range(2)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(200):
                until(hasty.write(b"not awaited").done)
        finally:
            ends.set()
            until_ended(*callers)
        until(hasty.write(b"alone").done)


def test_events_of_several_writers_become_durable_without_a_flush(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        writers = [store.writer("s/a") for _ in range(5)]
        acks = [writer.write(str(number).encode()) for number in range(100) for writer in writers]
        until(lambda: all(ack.done() for ack in acks))


def test_closing_commits_what_was_accepted_whoever_is_at_work(tmp_path: Path) -> None:
    for number in range(30):
        store = _store(tmp_path / str(number))
        acks = [store.writer("s/a").write(b"x") for _ in range(3)]
        store.close()
        assert all(ack.done() for ack in acks)
        assert len({ack.result() for ack in acks}) == 3


class Struck(BaseException):
    """Thrown into whichever thread carries a commit."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_commit_that_is_always_interrupted_is_refused_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(self: Appender, commit: object) -> None:
        raise Struck

    with _store(tmp_path) as store, store.writer("s/a") as writer:
        with monkeypatch.context() as struck:
            struck.setattr(Appender, "_finish", strike)
            ack = writer.write(b"never")
            refused: list[BaseException] = []
            while not refused:
                try:
                    ack.result(60)
                except Struck:
                    continue
                except StoreUnavailable as exc:
                    refused.append(exc)
        assert "interrupted" in str(refused[0])
        with pytest.raises(StoreUnavailable):
            writer.flush()
        writer.write(b"next").result(60)
        assert [event.body for event in store.reader("s/a")] == [b"next"]


def test_events_that_can_not_be_gathered_are_refused_and_end_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: WriterQueue, bytes_max: int) -> None:
        raise TypeError("not a number")

    with _store(tmp_path) as store, store.writer("s/a") as writer, store.writer("s/a") as other:
        with monkeypatch.context() as failing:
            failing.setattr(WriterQueue, "_take_runs", fail)
            ack = writer.write(b"never")
            with pytest.raises(StoreUnavailable, match="not a number"):
                ack.result(PATIENCE_S)
            with pytest.raises(StoreUnavailable):
                writer.flush()
        assert not store._appender._lost
        writer.write(b"next").result(PATIENCE_S)
        other.write(b"last").result(PATIENCE_S)
        assert [event.body for event in store.reader("s/a")] == [b"next", b"last"]


def test_an_exception_that_strikes_while_events_are_gathered_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, struck = WriterQueue._take_runs, list[int]()

    def strike_once(self: WriterQueue, bytes_max: int) -> Any:
        if not struck:
            struck.append(1)
            raise TimeoutError("a time limit of the application")
        return real(self, bytes_max)

    monkeypatch.setattr(WriterQueue, "_take_runs", strike_once)
    with _store(tmp_path) as store, store.writer("s/a") as writer:
        monkeypatch.setattr(store.runtime.tasks, "spawn", lambda *_: SimpleNamespace(join=lambda *_: True))
        ack = writer.write(b"kept")
        with pytest.raises(TimeoutError, match="of the application"):
            ack.result(PATIENCE_S)
        ack.result(PATIENCE_S)
        assert [event.body for event in store.reader("s/a")] == [b"kept"]


def test_a_flush_waits_for_every_batch_however_many_are_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished batches are forgotten now and then, and never one that was accepted a moment ago."""
    held = threading.Event()
    real = Committer.prepare

    def prepare(self: Committer, works: Any) -> Any:
        assert held.wait(PATIENCE_S)
        return real(self, works)

    monkeypatch.setattr(Committer, "prepare", prepare)
    with _store(tmp_path) as store, store.writer("s/a") as writer:
        acks = [writer.write_batch(pa.table({"payload": [b"%d" % number]})) for number in range(200)]
        watched = len(writer._queue.outstanding())
        held.set()
        assert watched == len(acks)
        writer.flush()
        assert all(ack.done() for ack in acks)
