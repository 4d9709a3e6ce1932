"""A row of the catalog that was changed behind the store's back is an error, never a wrong answer; and `check` finds it."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
import xxhash
from psycopg import sql

import anabranch as ab
from anabranch.catalog.digests import row_digest
from anabranch.errors import AnabranchError, CorruptCatalog
from anabranch.model.ids import BlobId
from anabranch.store import Store
from tests import catalog_file
from tests.postgres_server import drop, fresh_url
from tests.store import damage
from tests.store.damage import SETTINGS, answers, changed, faults, fill, try_all
from tests.store.helpers import events_of, sound

EDITS = 40
EDITS_OF_MANY = 600
ON_POSTGRES = 20


@pytest.mark.parametrize("edits", [EDITS, pytest.param(EDITS_OF_MANY, marks=pytest.mark.slow)])
def test_no_edit_of_a_row_gives_a_wrong_answer_or_a_raw_exception(tmp_path: Path, edits: int, seed: int) -> None:
    made, wrong = try_all(tmp_path, seed, edits)
    assert made == edits
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_results_do_not_depend_on_assertions(tmp_path: Path, seed: int) -> None:
    command = [sys.executable, "-O", "-m", damage.__name__, str(tmp_path), str(seed), "40"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "40 edits"), f"{run.stdout}\n{run.stderr}"


# one by one


@pytest.fixture
def river(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "river", settings=SETTINGS, create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/a")
        for number in range(3):
            with store.writer("iot/a") as writer:
                writer.write(b"%d" % number).result(120)
        yield store


def edit(tmp_path: Path, statement: str) -> None:
    assert catalog_file.change(tmp_path / "river" / "catalog.db", statement, digested=False) > 0


# The statement, and the table and the row that the error names.
NAMED = {
    "extents": ("update extents set appended_low = appended_low + 1 where start = 1", "extents", "1, 1"),
    "logs": ("update logs set length = length - 1", "logs", "1"),
    "segments": ("update segments set head = 1", "segments", None),
    "streams": ("update streams set epoch = epoch + 1", "streams", None),
}


@pytest.mark.parametrize("case", NAMED)
def test_the_error_names_table_and_row(river: Store, tmp_path: Path, case: str) -> None:
    statement, table, row = NAMED[case]
    edit(tmp_path, statement)
    with pytest.raises(CorruptCatalog, match=f"table {table}") as caught:
        events_of(river, "iot/a")
    assert caught.value.table == table
    assert row is None or caught.value.row == row
    findings = list(river.check())
    assert [found.where for found in findings if found.where.startswith("table")] == [
        f"table {table}, row ({caught.value.row})"
    ]


def test_a_row_with_a_changed_key_is_detected(river: Store, tmp_path: Path) -> None:
    edit(tmp_path, "update spans set stream = stream + 1")
    with pytest.raises(CorruptCatalog, match="expected 1 spans, found 0"):
        events_of(river, "iot/a")
    assert any("found 0" in found.message for found in river.check())


@pytest.mark.parametrize("damaged", ["iot/a", "iot/b"])
def test_a_damaged_row_hides_nothing_else(river: Store, tmp_path: Path, damaged: str) -> None:
    """What lies behind a damaged stream or blob is checked too, and so is what belongs to the damaged stream."""
    river.streams.create("iot/b")
    with river.writer("iot/b") as writer:
        for _ in range(2):  # in blobs of their own
            writer.write_batch(pa.table({"key": ["k"], "payload": [b"x" * 100_000]})).result(120)
    streams = [river.streams.get("iot/a"), river.streams.get("iot/b")]
    first, last = sorted(streams, key=lambda info: str(info.name) != damaged)
    with river.catalog.reading() as reading:
        blobs = reading.blobs_after(BlobId(0), 10)
    assert len(blobs) >= 2
    edit(tmp_path, f"update streams set epoch = epoch + 1 where id = {first.id}")
    edit(tmp_path, f"delete from spans where stream = {last.id}")
    edit(tmp_path, f"update blobs set size = size + 1 where id = {blobs[0].id}")
    (tmp_path / "river" / "blobs" / blobs[-1].key).unlink()
    found = [(finding.where, finding.message) for finding in river.check()]
    assert any(where.startswith(f"stream {last.name}") and "no span" in what for where, what in found), found
    assert any(blobs[-1].key in where and "missing" in what for where, what in found), found


def test_nothing_is_collected_while_a_row_that_could_hold_it_is_damaged(river: Store, tmp_path: Path) -> None:
    edit(tmp_path, "update spans set log = log + 1")
    with pytest.raises(CorruptCatalog, match="table spans"):
        river.collect(horizon_us=0)
    edit(tmp_path, "update spans set log = log - 1")
    assert [event.body for event in events_of(river, "iot/a")] == [b"0", b"1", b"2"]
    assert sound(river)


def test_a_damaged_row_never_gets_a_valid_digest(river: Store, tmp_path: Path) -> None:
    """An append is refused, whatever it would have made of the row."""
    edit(tmp_path, "update logs set size = size + 1")
    with pytest.raises(AnabranchError), river.writer("iot/a") as writer:
        writer.write(b"more").result(120)
    assert any("table logs" in found.where for found in river.check())
    edit(tmp_path, "update logs set size = size - 1")
    assert sound(river)
    assert len(events_of(river, "iot/a")) == 3


def test_repair_corrects_a_log_where_its_digest_matches(river: Store, tmp_path: Path) -> None:
    edit(tmp_path, "update logs set size = size + 7")
    assert [mended.message for mended in river.repair()]
    assert sound(river)
    edit(tmp_path, "update logs set fence = 7")  # which follows from nothing
    assert not list(river.repair())
    assert list(river.check())


def test_a_digest_is_as_documented() -> None:
    numbers = b"i" + struct.pack("<i", -7) + b"l" + struct.pack("<i3H", 3, 5, 0, 2)
    written = b"(" + struct.pack("<i", 5) + b"u" + struct.pack("<i", 2) + "ü".encode() + b"N" + numbers
    written += b"s" + struct.pack("<i", 1) + b"\xff"
    row = ("ü", None, -7, 1 << 31 | 5, b"\xff")
    assert row_digest(row) % (1 << 64) == xxhash.xxh3_64_intdigest(written)


# PostgreSQL


@pytest.mark.slow
def test_no_edit_of_a_row_on_postgres_gives_a_wrong_answer_or_a_raw_exception(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    url = fresh_url()
    base, _, schema = url.rpartition("schema=")
    with ab.connect(url, blobs=tmp_path / "blobs", settings=SETTINGS, create=True) as store:
        fill(store, tmp_path)
        expected = answers(store)
        assert sound(store)
        wrong: list[str] = []
        made = 0
        with psycopg.connect(base.rstrip("?&"), autocommit=True) as database:
            database.execute("set session_replication_role to replica")  # checks no foreign key
            database.execute(sql.SQL("set search_path to {}").format(sql.Identifier(schema)))
            columns = database.execute(
                "select table_name, column_name from information_schema.columns where table_schema = %s", (schema,)
            ).fetchall()
            rng.shuffle(columns)
            while made < ON_POSTGRES:
                for table, column in columns:
                    made += one_edit(store, database, table, column, rng, expected, wrong)
                    if made == ON_POSTGRES:
                        break
        assert sound(store)
    drop(url)
    assert not wrong, "\n".join(wrong)


def one_edit(
    store: Store,
    database: psycopg.Connection[tuple[object, ...]],
    table: str,
    column: str,
    rng: random.Random,
    expected: dict[str, object],
    wrong: list[str],
) -> bool:
    """Change a value, look, and change it back. False where the database refuses it, or nothing changed."""
    at, named = sql.Identifier(table), sql.Identifier(column)
    found = database.execute(sql.SQL("select ctid::text, {} from {}").format(named, at)).fetchall()
    place, before = rng.choice(found)
    others = [value for _, value in found if value != before]
    kind, after = rng.choice(list(changed(before, others, rng)))
    change = sql.SQL("update {} set {} = %s where ctid = %s::tid returning ctid::text").format(at, named)
    try:
        row = database.execute(change, (after, place)).fetchone()
    except psycopg.Error:
        return False
    assert row is not None
    (now,) = database.execute(sql.SQL("select {} from {} where ctid = %s::tid").format(named, at), row).fetchone() or (
        None,
    )
    if now != before:
        wrong += [
            f"{table}.{column}, {kind}: {before!r:.60} → {now!r:.60}: {what}"
            for what in faults(store, expected, changing=False)
        ]
    database.execute(change, (before, row[0]))
    return now != before
