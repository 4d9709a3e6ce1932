"""PostgreSQL restarted, killed and lost to its standby while processes write: what was acknowledged is there once, in order.

Four processes pour events of all sizes. The server is waited out for `settings.catalog_lock_s`, half a minute.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import anabranch as ab
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.state.transaction import PUBLISHED, PublishedSeries
from anabranch.model.append import Appended
from anabranch.model.ids import StreamId
from anabranch.runtime.ports import Runtime
from tests.contracts.catalog.samples import NOW, append, new_stream, part
from tests.parameters import rest_is_slow
from tests.postgres_server import Server, fresh_url
from tests.process.children import Child, pour, verify
from tests.waiting import until

pytestmark = pytest.mark.process

STREAM = "s/events"
WRITERS = 4


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.remove()


def ask(url: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as database:
        cursor = database.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


class Writers:
    """Processes that write into one stream until they are told to stop."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._blobs, self._stop = str(folder / "blobs"), folder / "stop"
        with ab.connect(url, blobs=self._blobs, create=True) as store:
            store.scopes.create("s")
            store.streams.create(STREAM, scaling=3)
        told = folder / "told"
        told.mkdir()
        self.children = [
            Child(told, f"w{me}", pour, url, STREAM, f"w{me}", me, self._stop, self._blobs) for me in range(WRITERS)
        ]
        self.go_on()

    def acknowledged(self) -> list[int]:
        """How many events each was told of."""
        return [sum(line[0] == "ack" for line in child.lines()) for child in self.children]

    def go_on(self, more: int = 60) -> None:
        """Wait until each was told of so many more events."""
        before = self.acknowledged()

        def done() -> bool:
            raised = [line for child in self.children for line in child.lines() if line[0] == "raised"]
            assert not raised, raised
            return all(now >= then + more for then, now in zip(before, self.acknowledged(), strict=True))

        until(done, 200)

    def judge(self) -> None:
        """Stop them; what they were told must be true."""
        self._stop.touch()
        assert [child.join() for child in self.children] == [0] * WRITERS
        with ab.connect(self._url, blobs=self._blobs, create=True) as store:
            acknowledged, found = verify(store, STREAM, self.children)
            assert acknowledged == found  # nobody was killed, so nobody was left without an answer
            assert list(store.check()) == []

    def remove(self) -> None:
        """Kill those that still run."""
        for child in self.children:
            child.kill()


def committing(url: str) -> list[int]:
    """The server's processes that are inside of a commit."""
    text = "select pid from pg_stat_activity where state = 'active' and query like '%append_2(%' and pid <> pg_backend_pid()"
    return [pid for (pid,) in ask(url, text)]


@pytest.mark.slow
def test_a_server_that_restarts_and_crashes_under_writers_loses_and_doubles_nothing(
    server: Server, tmp_path: Path
) -> None:
    writers = Writers(tmp_path, fresh_url(server.url))
    try:
        server.stop(signal.SIGINT)  # in order, but at once: whoever commits is cut off
        time.sleep(0.3)
        server.start()
        writers.go_on()
        server.kill()  # with all of its processes, as when the power goes
        time.sleep(0.3)
        server.start()
        writers.go_on()
        for _ in range(3):  # one process in the midst of a commit: the server ends all others and recovers
            caught: list[int] = []
            until(lambda caught=caught: caught.extend(committing(server.url)) or caught)  # type: ignore[misc]
            os.kill(caught[0], signal.SIGKILL)
            until(lambda: _answers(server))
            writers.go_on(20)
        writers.judge()
    finally:
        writers.remove()


def _answers(server: Server) -> bool:
    try:
        return ask(server.url, "select 1") == [(1,)]
    except psycopg.Error:
        return False


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary, and a standby that has every commit on its disk before it is acknowledged."""
    primary = Server()
    standby = Server(standby_of=primary)
    ask(primary.url, "alter system set synchronous_standby_names = 'standby'")
    ask(primary.url, "select pg_reload_conf()")
    until(lambda: ask(primary.url, "select sync_state from pg_stat_replication") == [("sync",)])
    yield primary, standby
    primary.remove()
    standby.remove()


def both(primary: Server, standby: Server) -> str:
    """The address of whichever of the two takes writes."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=5"


def test_a_primary_that_is_lost_takes_no_acknowledged_event_with_it(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    primary, standby = pair
    writers = Writers(tmp_path, fresh_url(both(primary, standby)))
    try:
        primary.kill()
        assert ask(standby.url, "select pg_promote(true, 60)") == [(True,)]
        writers.go_on()
        writers.judge()
        assert ask(standby.url, "select pg_is_in_recovery()") == [(False,)]
    finally:
        writers.remove()


@pytest.mark.slow
def test_nothing_is_acknowledged_that_the_standby_does_not_have(pair: tuple[Server, Server]) -> None:
    primary, standby = pair
    with closing(PostgresCatalog(fresh_url(both(primary, standby)), Runtime())) as catalog:
        log = new_stream(catalog)
        assert append(catalog, part(log, writer="w")) == (Appended(0, NOW),)
        standby.kill()
        answers: list[object] = []
        task = Runtime().tasks.spawn("append", lambda: answers.append(append(catalog, part(log, writer="w", first=1))))
        until(lambda: ask(primary.url, "select 1 from pg_stat_activity where wait_event = 'SyncRep'"))
        with catalog.reading() as reading:
            assert reading.logs([log])[log].length == 1  # nor read by anybody
        assert answers == []
        standby.start()
        task.join()
        assert answers == [(Appended(1, NOW),)]


def _request(catalog: PostgresCatalog) -> str:
    with catalog.writing(StreamId(5)) as txn:
        if txn.request("r") is not None:
            return "was there"
        txn.record_request("r", "scale", "{}", now=NOW)
    return "done"


def _number(catalog: PostgresCatalog) -> str:
    with catalog.writing() as txn:
        if txn.state(PUBLISHED, "q") is not None:
            return "was there"
        txn.put_state(PUBLISHED, "q", PublishedSeries(1))
    return "done"


@pytest.mark.slow
@pytest.mark.parametrize("what", rest_is_slow(["a numbered unit", "an append", "a request"]))
def test_what_was_committed_alone_is_not_called_safe_when_it_is_asked_for_again(
    pair: tuple[Server, Server], what: str
) -> None:
    # A server that falls while it waits for its standby has the commit after its recovery, and the standby may not:
    # whoever asks for his answer again must wait for the standby, too.
    primary, standby = pair
    url = fresh_url(both(primary, standby))
    asked: dict[str, Callable[[PostgresCatalog], object]] = {
        "an append": lambda catalog: append(catalog, part(log, writer="w")),
        "a request": _request,
        "a numbered unit": _number,
    }
    ask_for = asked[what]
    with closing(PostgresCatalog(url, Runtime())) as catalog:
        log = new_stream(catalog)
        standby.kill()
        failures: list[BaseException] = []

        def send() -> None:
            try:
                ask_for(catalog)
            except ab.errors.AppendUncertain as exc:
                failures.append(exc)

        task = Runtime().tasks.spawn("append", send)
        until(lambda: ask(primary.url, "select 1 from pg_stat_activity where wait_event = 'SyncRep'"))
        primary.kill()
        task.join()
        assert len(failures) == 1
        primary.start()
    with closing(PostgresCatalog(url, Runtime())) as catalog:
        answers: list[object] = []
        task = Runtime().tasks.spawn("again", lambda: answers.append(ask_for(catalog)))
        until(lambda: answers or ask(primary.url, "select 1 from pg_stat_activity where wait_event = 'SyncRep'"))
        assert answers == []
        standby.start()
        task.join()
        assert answers == [{"an append": (Appended(0, NOW, duplicate=True),)}.get(what, "was there")]
