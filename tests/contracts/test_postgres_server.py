"""The PostgreSQL catalog when its server, its connections or its schema are not as they should be."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import errors as pg

import anabranch as ab
from anabranch import limits
from anabranch.catalog.postgres import pipeline
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.postgres.clock import ServerClock
from anabranch.catalog.postgres.connection import translate
from anabranch.errors import (
    AppendUncertain,
    Conflict,
    CorruptCatalog,
    DiskFull,
    ReadOnlyStore,
    StoreBusy,
    StoreUnavailable,
)
from anabranch.model.append import Appended
from anabranch.model.ids import LogId
from anabranch.model.stream import Scope
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from tests.contracts.catalog.samples import NOW, append, lengths, new_stream, part
from tests.contracts.postgres_kit import opened, sql
from tests.postgres_server import Server, TlsProxy, fresh_url
from tests.waiting import until, until_ended


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that a test may stop and kill."""
    server = Server()
    yield server
    server.remove()


# a server that goes away


@pytest.mark.slow
def test_a_restart_is_waited_out_by_what_has_not_begun_to_commit(own: Server) -> None:
    url = fresh_url(own.url)
    with opened(url) as catalog:
        log = new_stream(catalog)
        own.stop()
        back = threading.Timer(0.7, own.start)
        back.start()
        with catalog.reading() as txn:
            assert txn.scope("iot")
        back.join()
        for again in (
            lambda: append(catalog, part(log)) == (Appended(0, NOW),),
            lambda: scope_of(catalog),
        ):
            own.stop()
            back = threading.Timer(0.7, own.start)
            back.start()
            assert again()
            back.join()
        assert lengths(catalog, [log]) == {log: 1}


def scope_of(catalog: PostgresCatalog) -> Scope | None:
    with catalog.writing() as txn:
        return txn.scope("iot")


def test_a_server_that_stays_away_is_not_waited_for_longer_than_stated(own: Server) -> None:
    url = fresh_url(own.url)
    with opened(url, lock_s=0.5) as catalog:
        own.stop()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable), catalog.reading():
            pass
        with pytest.raises(StoreUnavailable):
            append(catalog, part(1))
        assert 1.0 <= time.monotonic() - began < 30  # of the minute that the default would take
        own.start()


def test_an_answer_lost_on_the_way_is_uncertain_and_changes_nothing_by_itself(url: str) -> None:
    with opened(url) as catalog, opened(url) as other:
        log = new_stream(catalog)
        with other.writing() as txn:
            txn.logs([log])
            failures: list[BaseException] = []

            def send() -> None:
                try:
                    append(catalog, part(log, writer="w"))
                except AppendUncertain as exc:
                    failures.append(exc)

            thread = threading.Thread(target=send)
            thread.start()
            waiting = "select pid from pg_stat_activity where query like '%append_2%' and wait_event_type = 'Lock'"
            until(lambda: sql(url, waiting))
            sql(url, f"select pg_terminate_backend(pid) from ({waiting}) as held")
            until_ended(thread)
        assert [type(failure) for failure in failures] == [AppendUncertain]
        assert isinstance(failures[0].__cause__, psycopg.Error)
        assert append(catalog, part(log, writer="w")) == (Appended(0, NOW),)


def test_a_transaction_cut_off_before_its_end_has_changed_nothing(url: str) -> None:
    with opened(url) as catalog:
        cut = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted"

        def change(*, then: bool) -> None:
            with catalog.writing() as txn:
                txn.put_scope(Scope("iot", {}, NOW))
                until(lambda: not sql(url, cut))  # it holds its lock until it is gone
                if then:
                    txn.put_scope(Scope("iot", {"a": "b"}, NOW))

        with pytest.raises(StoreUnavailable):
            change(then=True)
        with pytest.raises(AppendUncertain):  # it might have been in its last moment
            change(then=False)
        with catalog.reading() as txn:
            assert txn.scopes() == []


@pytest.mark.process
@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT], ids=["killed", "restarted"])
def test_nothing_is_lost_or_doubled_where_the_server_falls_in_mid_commit(
    own: Server, tmp_path: Path, how: signal.Signals
) -> None:
    url = fresh_url(own.url)
    threads, told, sent = 6, [], []
    done = threading.Event()
    with ab.connect(url, blobs=tmp_path, settings=Settings(catalog_lock_s=120), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/events", scaling=2)

        def write(me: int) -> None:
            while True:
                try:
                    writer = store.writer("s/events", writer_id=f"w{me}")
                    break
                except StoreUnavailable:  # cut off in the midst of reading its routes
                    continue
            number = 0
            while not done.is_set():
                text = f"{me}:{number:06}"
                sent.append(text)
                writer.write(text.encode(), key=f"k{me}").result(120)
                told.append(text)
                number += 1
            writer.close()

        failures: list[BaseException] = []

        def guarded(me: int) -> None:
            try:
                write(me)
            except BaseException as exc:
                failures.append(exc)

        running = [threading.Thread(target=guarded, args=(me,)) for me in range(threads)]
        for each in running:
            each.start()
        for _ in range(3):
            before = len(told)
            until(lambda before=before: len(told) > before + 30 or failures)  # type: ignore[misc]
            own.stop(how)
            time.sleep(0.2)
            own.start()
        done.set()
        until_ended(*running)
        assert not failures, failures[0]
        with store.reader("s/events") as reader:
            found = [bytes(event.body).decode() for event in reader]
        assert not list(store.check())
    assert sorted(found) == sorted(set(found))
    assert set(told) <= set(found) <= set(sent)
    for me in range(threads):
        mine = [int(text.partition(":")[2]) for text in found if text.startswith(f"{me}:")]
        assert mine == list(range(len(mine)))


# waking others


def test_a_commit_elsewhere_wakes_who_tails_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon that is depends on the machine, and is a figure of the bench. Here nobody looks by itself for an hour."""
    monkeypatch.setattr(limits, "LISTEN_POLL_US", 3_600_000_000)
    with opened(url) as writer, opened(url) as reader:
        log = new_stream(writer)
        for _ in range(20):
            before = reader.token()
            append(writer, part(log))
            until(lambda before=before: reader.token() != before)  # type: ignore[misc]
            time.sleep(0.01)


def test_who_listens_is_found_again_after_its_connection_was_cut(url: str) -> None:
    with opened(url) as writer, opened(url) as reader:
        log = new_stream(writer)
        reader.token()
        cut = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_snapshot_xmax%'"
        until(lambda: sql(url, cut))
        for _ in range(2):
            before = reader.token()
            append(writer, part(log))
            until(lambda before=before: reader.token() != before)  # type: ignore[misc]
            time.sleep(0.6)


def test_commits_are_seen_even_where_notifications_are_swallowed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(url) as writer, opened(url) as reader:
        monkeypatch.setattr(writer._notifier, "notify", lambda: None)
        log = new_stream(writer)
        before = reader.token()
        append(writer, part(log))
        until(lambda: reader.token() != before)


def test_no_commit_carries_a_notification(url: str) -> None:
    with opened(url) as catalog:
        text = " ".join(str(row[0]) for row in sql(url, "select prosrc from pg_proc where proname = 'append_2'"))
        assert "pg_notify" not in text.lower() and " notify " not in text.lower()
        append(catalog, part(new_stream(catalog)))


# errors


def test_the_drivers_errors_have_names_in_the_stores_terms() -> None:
    for error, expected in (
        (pg.DiskFull("x"), DiskFull),
        (pg.ReadOnlySqlTransaction("x"), ReadOnlyStore),
        (pg.LockNotAvailable("x"), StoreBusy),
        (pg.DeadlockDetected("x"), Conflict),
        (pg.IndexCorrupted("x"), CorruptCatalog),
        (psycopg.OperationalError("x"), StoreUnavailable),
    ):
        assert type(translate(error, "there")) is expected


def test_a_server_that_takes_no_writes_says_so(url: str) -> None:
    with opened(url) as catalog:
        log = new_stream(catalog)
        database = catalog._pool.borrow()
        database.execute("set default_transaction_read_only = on")
        catalog._pool.give_back(database)
        with pytest.raises(ReadOnlyStore):
            append(catalog, part(log))
        assert append(catalog, part(log)) == (Appended(0, NOW),)  # by another connection


def test_a_role_with_the_rights_that_the_manual_names_can_do_everything(url: str, tmp_path: Path) -> None:
    schema = url.rpartition("schema=")[2]
    role = f"app_{schema}"
    with opened(url):
        pass
    sql(url, f"create role {role} login")
    manual = Path(__file__).parents[2].joinpath("docs", "how-to", "postgres.md").read_text()
    grants = manual.partition("```sql\n")[2].partition("```")[0]
    assert grants.count("GRANT") == 4
    sql(url, grants.replace("SCHEMA anabranch", f"SCHEMA {schema}").replace("TO app", f"TO {role}"))
    try:
        theirs = url.replace("postgres@", f"{role}@", 1)
        with ab.connect(theirs, blobs=tmp_path, settings=Settings(inline_bytes_max=0), create=True) as store:
            store.scopes.create("s")
            store.streams.create("s/events", scaling=2)
            with store.writer("s/events", writer_id="w") as writer:
                writer.write(b"x", key="k").result(120)
            store.streams.scale("s/events", 3)
            store.compact(force=True)
            store.streams.delete("s/events")
            store.collect(horizon_us=0)
            assert list(store.check()) == []
    finally:
        sql(url, f"drop owned by {role}; drop role {role}")


def test_another_clients_lock_is_not_waited_for_longer_than_stated(url: str) -> None:
    with opened(url) as holder, opened(url, lock_s=0.3) as catalog:
        log = new_stream(holder)
        with holder.writing() as txn:
            txn.update_log(replace(txn.logs([log])[log], fence=1))
            with pytest.raises(StoreBusy):
                append(catalog, part(log))
            with pytest.raises(StoreBusy):
                append(catalog, part(log), part(LogId(log + 1)))
            with pytest.raises(StoreBusy), catalog.writing():
                pass


def test_a_server_is_spoken_to_only_with_the_certificate_that_the_url_demands(own: Server, tmp_path: Path) -> None:
    for name in ("server", "other"):
        subprocess.run(
            f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 2 "
            "-subj /CN=localhost -addext subjectAltName=DNS:localhost".split(),
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip
    proxy = TlsProxy(own, tmp_path / "server.crt", tmp_path / "server.key")

    def url(host: str, certificate: str) -> str:
        demand = f"sslmode=verify-full&sslrootcert={tmp_path}/{certificate}&schema=safe"
        return f"postgresql://postgres@{host}:{proxy.port}/postgres?{demand}"

    with opened(url("localhost", "server.crt")) as catalog:
        append(catalog, part(new_stream(catalog)))
        database = catalog._pool.borrow()
        assert database.pgconn.ssl_in_use
        catalog._pool.give_back(database)
    for wrong in (url("localhost", "other.crt"), url("127.0.0.1", "server.crt")):
        with pytest.raises(StoreUnavailable, match="certificate"), opened(wrong, lock_s=3600):
            pass  # or nobody sees the end of this
    proxy.close()


def test_an_error_behind_a_commit_does_not_say_that_nothing_was_changed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PostgresCatalog(url, Runtime()).close()
    fails = (
        b"select 1 / case when exists (select from scopes where name = 's') and "
        b"pg_current_xact_id_if_assigned() is null then 0 else 1 end"
    )
    statement = pipeline._statement

    def failing(name: str) -> pipeline._Statement:
        return pipeline._Statement(fails, None, []) if name == "clock" else statement(name)

    monkeypatch.setattr(pipeline, "_statement", failing)
    catalog = PostgresCatalog(url, Runtime())
    monkeypatch.setattr(ServerClock, "due", property(lambda _clock: True))
    with catalog.writing() as writing:
        writing.put_scope(Scope("s", {}, NOW))
    monkeypatch.setattr(ServerClock, "due", property(lambda _clock: False))
    with catalog.reading() as reading:
        assert reading.scope("s") is not None
    catalog.close()
