"""Manifests whose rows are each what a catalog could hold, and together are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.blobs import keys
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.tables import BY_NAME, TABLES
from anabranch.errors import AnabranchError, CorruptBlob, NotFound
from anabranch.log.checking.check import check
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.backup import backup, newest_backup
from anabranch.log.recovery.manifest import Manifest
from anabranch.log.recovery.rebuild import rebuild
from anabranch.log.recovery.reload import reload
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.postgres_server import drop, fresh_url
from tests.store.log.recovery.test_recovery import fill

Row = dict[str, Any]
Rows = dict[str, list[Row]]
RUNTIME = Runtime(settings=Settings(inline_bytes_max=2_000))


def filled() -> Blobs:
    """The blobs of a store with a bit of everything, and a manifest of it."""
    blobs = MemoryBlobs()
    with Store(SqliteCatalog(None, RUNTIME), blobs, RUNTIME) as store:
        fill(store)
        with store.producer("iot/raw", "p") as producer:
            producer.append([{"device": "p", "n": 1}])
        store.streams.copy("iot/raw", "iot/copy")
        store.streams.rename("iot/sealed", "iot/closed")
        store.aliases.add("iot/raw", "iot/alias")
        store.policies.retention("iot/raw", ab.RetainFor("9999d"), request="r")
        store.export_manifest()
        kept = MemoryBlobs()
        for info in blobs.list():
            kept.put(info.key, [blobs.get(info.key)])
    return kept


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    return filled()


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    """An empty catalog."""
    url = fresh_url() if request.param == "postgres" else None
    catalog: Catalog = SqliteCatalog(None, RUNTIME) if url is None else PostgresCatalog(url, RUNTIME)
    yield catalog
    catalog.close()
    if url is not None:
        drop(url)


def copied(blobs: Blobs) -> Blobs:
    """Blobs of one's own."""
    made = MemoryBlobs()
    for info in blobs.list():
        made.put(info.key, [blobs.get(info.key)])
    return made


def rows_of(blobs: Blobs) -> tuple[Manifest, Rows]:
    """The newest manifest, and all its rows."""
    manifest, _ = manifests.newest(blobs)
    assert manifest is not None
    return manifest, {table.name: list(manifests.rows(blobs, manifest, table.name)) for table in TABLES}


def put_manifest(blobs: Blobs, like: Manifest, rows: Rows) -> Manifest:
    """A later manifest with these rows."""
    folder = keys.manifest_folder(Micros(like.taken_at + 1), "f" * 24)
    parts: list[manifests.ManifestPart] = []
    for name, found in rows.items():
        if found:
            names = [column.name for column in BY_NAME[name].columns]
            values = [tuple(row[each] for each in names) for row in found]
            parts.append(manifests._put(blobs, f"{folder}{len(parts):08}.arrow", BY_NAME[name], values))
    made = replace(like, folder=folder, taken_at=Micros(like.taken_at + 1), parts=tuple(parts))
    manifests.finish(made, blobs)
    return made


def twice(table: str) -> Callable[[Rows], None]:
    return lambda rows: rows[table].append(dict(rows[table][0]))


def same(table: str, column: str) -> Callable[[Rows], None]:
    """Two rows of a table have one value of a column."""

    def change(rows: Rows) -> None:
        rows[table][1][column] = rows[table][0][column]

    return change


def missing(table: str) -> Callable[[Rows], None]:
    return lambda rows: rows[table].clear()


CLASHES = {
    **{f"{table.name} twice": twice(table.name) for table in TABLES},
    "one blob id twice": same("blobs", "id"),
    "one stream id twice": same("streams", "id"),
    "one name twice": same("streams", "name"),
    "one log id twice": same("logs", "id"),
    "no logs": missing("logs"),
    "no streams": missing("streams"),
}


@pytest.mark.parametrize("clash", CLASHES)
def test_a_manifest_whose_rows_contradict_each_other_is_passed_over(blobs: Blobs, fresh: Catalog, clash: str) -> None:
    blobs = copied(blobs)
    older, rows = rows_of(blobs)
    CLASHES[clash](rows)
    bad = put_manifest(blobs, older, rows)
    report = rebuild(fresh, blobs, RUNTIME)
    assert report.manifest == older.folder
    assert "contradict each other" in report.damaged[bad.folder]
    assert [str(each) for each in check(fresh, blobs)] == []


def test_where_no_other_manifest_is_left_the_reason_is_said(blobs: Blobs, fresh: Catalog) -> None:
    blobs = copied(blobs)
    older, rows = rows_of(blobs)
    twice("spans")(rows)
    put_manifest(blobs, older, rows)
    blobs.delete(keys.manifest_index(older.folder))
    with pytest.raises(NotFound, match="rows of the table spans contradict each other"):
        rebuild(fresh, blobs, RUNTIME)
    with fresh.reading() as snapshot:
        assert snapshot.scopes() == []


def test_a_backup_whose_rows_contradict_each_other_is_one_error(fresh: Catalog, tmp_path: Path) -> None:
    place = MemoryBlobs()
    with ab.connect(tmp_path, create=True) as store:
        fill(store)
        backup(store.catalog, store.blobs, place, store.runtime)
    older, rows = rows_of(place)
    twice("segments")(rows)
    put_manifest(place, older, rows)
    with pytest.raises(CorruptBlob, match="rows of the table segments contradict each other"):
        reload(fresh, place, newest_backup(place), RUNTIME)


@pytest.mark.parametrize(("table", "column"), [("logs", "id"), ("blobs", "id"), ("changes", "sequence")])
def test_an_id_behind_which_none_can_be_assigned_is_refused(blobs: Blobs, table: str, column: str) -> None:
    blobs = copied(blobs)
    older, rows = rows_of(blobs)
    rows[table][-1][column] = (1 << 63) - 1
    bad = put_manifest(blobs, older, rows)
    _, damaged = manifests.newest(blobs)
    assert "the id is too large" in damaged[bad.folder]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_valid_rows_in_a_strange_company_are_loaded_or_passed_over(blobs: Blobs, data: st.DataObject) -> None:
    blobs = copied(blobs)
    older, rows = rows_of(blobs)
    for _ in range(data.draw(st.integers(1, 3))):
        table = data.draw(st.sampled_from([name for name, found in rows.items() if found]))
        found = rows[table]
        one, other = (data.draw(st.integers(0, len(found) - 1)) for _ in range(2))
        column = data.draw(st.sampled_from([column.name for column in BY_NAME[table].columns]))
        match data.draw(st.sampled_from(["twice", "drop", "same", "swap"])):
            case "twice":
                found.append(dict(found[one]))
            case "drop":
                del found[one]
            case "same":
                found[one][column] = found[other][column]
            case _:
                found[one][column], found[other][column] = found[other][column], found[one][column]
    bad = put_manifest(blobs, older, rows)
    catalog = SqliteCatalog(None, RUNTIME)
    try:
        report = rebuild(catalog, blobs, RUNTIME)
        assert (report.manifest == older.folder) == (bad.folder in report.damaged)
        findings = [str(each) for each in check(catalog, blobs)]
        if report.manifest == older.folder:
            assert findings == []
    except AnabranchError as exc:
        raise AssertionError("the older manifest was not taken") from exc
    finally:
        catalog.close()
