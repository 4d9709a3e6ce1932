"""The PostgreSQL catalog as it is made, migrated, and addressed."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

import anabranch as ab
from anabranch.catalog.postgres import migrate as migrating
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.postgres.address import DatabaseAddress
from anabranch.catalog.postgres.connection import connect
from anabranch.errors import (
    CorruptCatalog,
    FormatTooNew,
    InvalidArgument,
    StoreNotFound,
    StoreUnavailable,
)
from anabranch.model.append import Appended
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from tests.contracts.catalog.samples import NOW, append, lengths, new_stream, part
from tests.contracts.postgres_kit import opened, sql
from tests.postgres_server import drop, fresh_url
from tests.waiting import until_ended

# making and migrating


def shape(url: str) -> list[tuple[object, ...]]:
    """All that a catalog's schema is made of."""
    return sql(
        url,
        """
        select 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage::text,
               a.attidentity::text, (select collname from pg_collation where oid = a.attcollation), c.reloptions::text
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'S') and a.attnum > 0
        union all
        select 'index', indexname, replace(indexdef, current_schema(), ''), '', true, '', '', null, null
        from pg_indexes where schemaname = current_schema()
        union all
        select 'constraint', conname, replace(pg_get_constraintdef(oid), current_schema(), ''), '', true, '', '', null, null
        from pg_constraint where connamespace = current_schema()::regnamespace
        union all
        select 'function', proname, prosrc, provolatile::text, true, '', '', null, null
        from pg_proc where pronamespace = current_schema()::regnamespace
        union all
        select 'format', value::text, '', '', true, '', '', null, null from meta where name = 'format'
        order by 1, 2, 3
        """,
    )


def test_a_migrated_schema_equals_a_fresh_one(url: str) -> None:
    with opened(url):
        fresh = shape(url)
    assert {row[0] for row in fresh} == {"column", "index", "constraint", "function", "format"}
    for first in range(1, migrating.FORMAT + 1):
        old = fresh_url()
        address = DatabaseAddress.parse(old)
        with connect(address, lock_s=5) as database:
            database.execute(f"create schema {address.schema}".encode())
            migrating.run(database, migrating.MIGRATIONS[:first])
            database.execute("insert into meta (name, value) values ('format', %s)", (first,))
            functions = migrating.functions()
            if first < migrating.FORMAT:  # what a migration uses of the older functions, and what it removes
                functions = [each for each in functions if "function lock_key" in each]
                functions.append("create function append_1(now bigint) returns bigint language sql as 'select $1'")
            migrating.run(database, functions)
        with opened(old):
            assert shape(old) == fresh
        drop(old)


def test_an_older_catalog_is_migrated_once_however_many_open_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(url) as catalog:
        log = new_stream(catalog)
    monkeypatch.setattr(migrating, "MIGRATIONS", [*migrating.MIGRATIONS, "alter table leases add column note text;"])
    monkeypatch.setattr(migrating, "FORMAT", migrating.FORMAT + 1)
    failures: list[BaseException] = []

    def open_it() -> None:
        try:
            address = DatabaseAddress.parse(url)
            with connect(address, lock_s=30) as database:
                migrating.migrate(database, address.schema, url)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for each in threads:
        each.start()
    until_ended(*threads)
    assert not failures, failures[0]
    assert sql(url, "select value from meta where name = 'format'") == [(migrating.FORMAT,)]
    assert sql(url, f"select id from logs where id = {log}") == [(log,)]


def test_many_processes_may_make_one_catalog_at_once(url: str) -> None:
    made: list[PostgresCatalog] = []
    threads = [threading.Thread(target=lambda: made.append(PostgresCatalog(url, Runtime()))) for _ in range(8)]
    for each in threads:
        each.start()
    until_ended(*threads)
    assert len(made) == 8
    for catalog in made:
        catalog.close()


def test_an_older_release_is_refused_before_it_changes_anything(url: str) -> None:
    with opened(url) as catalog:
        log = new_stream(catalog)
        newer = "update meta set value = 99 where name = 'format'"
        sql(url, newer)
        with pytest.raises(FormatTooNew, match="99"), opened(url):
            pass
        with pytest.raises(FormatTooNew, match="99"), catalog.writing():  # open while another process migrated
            pass
        assert append(catalog, part(log)) == (Appended(0, NOW),)  # its commit function is there still
        sql(url, "do $$ begin execute 'drop function ' || 'append_2'::regproc; end $$")
        with pytest.raises(FormatTooNew, match="99"):
            append(catalog, part(log))
        assert lengths(catalog, [log]) == {log: 1}


def test_a_schema_of_somebody_else_is_left_alone(url: str) -> None:
    schema = url.rpartition("schema=")[2]
    base = url.rpartition("schema=")[0].rstrip("?&")
    with psycopg.connect(base, autocommit=True) as database:
        database.execute(f"create schema {schema}".encode())
        database.execute(f"create table {schema}.meta (name text)".encode())
    with pytest.raises(CorruptCatalog, match="other tables"), opened(url):
        pass
    assert sql(
        url, "select count(*) from pg_class where relkind = 'r' and relnamespace = current_schema()::regnamespace"
    ) == [(1,)]


def test_a_catalog_is_made_only_where_that_was_asked_for(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound):
        PostgresCatalog(url, Runtime(), create=False)
    ab.connect(url, blobs=tmp_path, create=True).close()
    ab.connect(url, blobs=tmp_path, create=False).close()


# addresses and errors


def test_an_address_keeps_libpqs_options_and_shows_no_password() -> None:
    address = DatabaseAddress.parse(
        "postgresql://me:geheim@a:1,b:2/db?sslmode=verify-full&schema=river&password=x&sslrootcert=/c a"
    )
    assert address.conninfo == "postgresql://me:geheim@a:1,b:2/db?sslmode=verify-full&password=x&sslrootcert=%2Fc%20a"
    assert address.schema == "river"
    assert "geheim" not in address.shown and "password" not in address.shown
    assert psycopg.conninfo.conninfo_to_dict(address.conninfo)["sslrootcert"] == "/c a"
    for bad in ("pg_x", "A", "a-b", "", "x" * 60):
        with pytest.raises(InvalidArgument):
            DatabaseAddress.parse(f"postgresql://h/db?schema={bad}")


def test_what_waiting_can_not_mend_is_said_at_once(url: str) -> None:
    base = url.partition("?")[0]
    patient = Settings(catalog_lock_s=3600)  # whoever waits at all fails this test
    for wrong in (f"{base}_not_there?schema=x", f"{base}?sslmode=require&schema=x"):
        with pytest.raises(StoreUnavailable):
            PostgresCatalog(wrong, Runtime(settings=patient))
    with pytest.raises(InvalidArgument, match="blobs="):
        ab.connect(url, settings=patient, create=True)
