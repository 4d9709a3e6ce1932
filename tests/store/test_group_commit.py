"""Who commits: the caller who waits, or a worker; never nobody."""

from __future__ import annotations

import threading
from pathlib import Path

import anabranch as ab
from tests.waiting import until, until_ended


def _store(folder: Path) -> ab.Store:
    store = ab.connect(folder)
    store.streams.create_scope("s")
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
