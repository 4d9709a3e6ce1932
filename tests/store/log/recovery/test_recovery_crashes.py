"""A crash at any port call of an export, of a backup and of a catalog's loading leaves the old or the new."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.log.checking.check import check
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.backup import backup, fetch_blobs, newest_backup
from anabranch.log.recovery.reload import is_empty, reload
from anabranch.model.ids import StreamId
from anabranch.testing.faults import SimulatedCrash
from anabranch.testing.faulty_ports import FaultyBlobs
from tests.contracts.catalog.manifests import Dump, dump
from tests.store.kit import SECOND, Kit
from tests.store.log.upkeep.test_upkeep_crashes import Doomed


def at_every_call(kit: Kit, work: Callable[[Doomed], None], look: Callable[[int], None], *, stride: int = 1) -> int:
    """Do the work again and again, a crash so many calls later each time, until it comes to its end."""
    for number in range(1, 500, stride):
        doomed = Doomed(kit, number)
        with suppress(SimulatedCrash):
            work(doomed)
            look(number)
            return number
        kit.clock.pass_time(SECOND)
        look(number)
    raise AssertionError("no end")


def prepare(folder: Path) -> tuple[Kit, StreamId]:
    kit = Kit(folder, inline_bytes_max=1_000)
    stream = kit.create("iot/sensors", segments=2)
    for count in (2, 50, 3, 60):
        kit.append(stream, [count, count])
    return kit, stream


def state(catalog: Catalog) -> Dump:
    with catalog.reading() as snapshot:
        found = dump(snapshot)
    # What a copy does without: marks of dead blobs, and blobs that nothing lies in.
    found["blobs"] = [(*row[:5], None, row[6]) for row in found["blobs"] if row[6] is not None]
    return found


def loaded(source: Blobs, kit: Kit, folder: str) -> Dump:
    with_rows = SqliteCatalog(None, kit.runtime)
    reload(with_rows, source, manifests.read(source, folder), kit.runtime)
    found = state(with_rows)
    with_rows.close()
    return found


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_export_leaves_the_manifest_before_or_the_new_one(tmp_path: Path, stride: int) -> None:
    kit, stream = prepare(tmp_path)
    manifests.export(kit.catalog, kit.blobs, kit.runtime)
    before = state(kit.catalog)
    kit.append(stream, [7, 7])
    after = state(kit.catalog)

    def look(number: int) -> None:
        newest, damaged = manifests.newest(kit.blobs)
        assert newest is not None and not damaged
        assert loaded(kit.blobs, kit, newest.folder) in (before, after)

    calls = at_every_call(kit, lambda d: none(manifests.export(d.catalog, d.blobs, kit.runtime)), look, stride=stride)
    assert calls > 20
    assert list(check(kit.catalog, kit.blobs, now=kit.clock.now())) == []
    kit.close()


def none(value: object) -> None:
    """Nothing of it."""


@pytest.mark.slow
def test_a_backup_leaves_the_one_before_or_the_new_one(tmp_path: Path) -> None:
    kit, stream = prepare(tmp_path)
    place = MemoryBlobs()
    backup(kit.catalog, kit.blobs, place, kit.runtime)
    before = state(kit.catalog)
    kit.append(stream, [70, 70])
    after = state(kit.catalog)

    def work(doomed: Doomed) -> None:
        backup(doomed.catalog, kit.blobs, FaultyBlobs(place, doomed.gate), kit.runtime)

    def look(number: int) -> None:
        manifest = newest_backup(place)
        target = MemoryBlobs()
        fetch_blobs(place, manifest, target)
        fresh = SqliteCatalog(None, kit.runtime)
        reload(fresh, place, manifest, kit.runtime)
        assert state(fresh) in (before, after)
        assert list(check(fresh, target, now=kit.clock.now())) == [], f"crash at call {number}"
        fresh.close()

    assert at_every_call(kit, work, look) > 20
    kit.close()


def test_a_catalog_that_is_loaded_is_empty_or_whole(tmp_path: Path) -> None:
    kit, _ = prepare(tmp_path)
    manifest = manifests.export(kit.catalog, kit.blobs, kit.runtime)
    whole = state(kit.catalog)
    kit.catalog.close()
    (tmp_path / "new").mkdir()
    kit.catalog = SqliteCatalog(tmp_path / "new", kit.runtime)

    def look(number: int) -> None:
        with kit.catalog.reading() as snapshot:
            empty = is_empty(snapshot)
        assert empty or state(kit.catalog) == whole
        if not empty:
            with kit.catalog.writing() as txn:
                txn.wipe()

    calls = at_every_call(kit, lambda d: reload(d.catalog, d.blobs, manifest, kit.runtime), look)
    assert calls > 10
    kit.close()
