"""Recovery between processes whose clocks differ: what began first is not told by comparing their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.blobs.memory import MemoryBlobs
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import LeaseExpired
from anabranch.log.lease import HeldLease
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.backup import backup, newest_backup
from anabranch.log.recovery.rebuild import rebuild
from anabranch.log.upkeep.collect import collect
from anabranch.runtime.ports import Runtime
from anabranch.testing.clock import ManualClock
from tests.store.kit import SECOND, Kit

_AHEAD_US = 20 * SECOND


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    yield made
    made.close()


def ahead(kit: Kit, micros: int = _AHEAD_US) -> Runtime:
    """Another process, whose clock is ahead."""
    return replace(kit.runtime, clock=ManualClock(kit.clock.now() + micros))


def collect_for_long(kit: Kit) -> None:
    for _ in range(4):
        kit.clock.pass_time(2 * limits.HORIZON_US)
        collect(kit.catalog, kit.blobs, kit.runtime)


def test_a_lease_of_a_clock_that_is_ahead_keeps_what_died_after_it_began(kit: Kit) -> None:
    stream = kit.create("iot/raw")
    kit.append(stream, [100])
    other = ahead(kit)
    with HeldLease(kit.catalog, other, "backup", "me", initial_us=100 * limits.HORIZON_US):
        kit.drop(stream)
        collect(kit.catalog, kit.blobs, kit.runtime)  # marks the blob as dead
        collect_for_long(kit)
        assert len(kit.files("commits/")) == 1
    collect_for_long(kit)
    assert kit.files("commits/") == []


def test_a_manifest_of_a_clock_that_is_ahead_keeps_what_it_names(kit: Kit) -> None:
    stream = kit.create("iot/raw")
    kit.append(stream, [100])
    manifests.export(kit.catalog, kit.blobs, ahead(kit))
    kit.drop(stream)
    collect(kit.catalog, kit.blobs, kit.runtime)
    collect_for_long(kit)
    assert len(kit.files("commits/")) == 1


def test_the_last_manifest_counts_though_its_clock_is_behind(kit: Kit) -> None:
    kit.create("iot/raw")
    manifests.export(kit.catalog, kit.blobs, ahead(kit))
    kit.create("iot/late")
    last = manifests.export(kit.catalog, kit.blobs, kit.runtime)
    newest, _ = manifests.newest(kit.blobs)
    assert newest is not None and newest.folder == last.folder
    assert newest.rows("streams") == 2


def test_the_last_backup_counts_though_its_clock_is_behind(kit: Kit) -> None:
    place = MemoryBlobs()
    kit.create("iot/raw")
    backup(kit.catalog, kit.blobs, place, ahead(kit))
    kit.create("iot/late")
    backup(kit.catalog, kit.blobs, place, kit.runtime)
    assert newest_backup(place).rows("streams") == 2


def test_a_blob_begun_by_a_clock_that_is_ahead_is_kept_until_somebody_decides(kit: Kit) -> None:
    stream = kit.create("iot/raw")
    kit.append(stream, [1])
    manifests.export(kit.catalog, kit.blobs, kit.runtime)
    kit.clock.pass_time(_AHEAD_US)
    kit.append(stream, [100])
    kit.clock.pass_time(-_AHEAD_US + SECOND)
    fresh = SqliteCatalog(None, kit.runtime)
    report = rebuild(fresh, kit.blobs, kit.runtime)
    assert len(report.newer) == 1
    for _ in range(4):
        kit.clock.pass_time(2 * limits.HORIZON_US)
        collect(fresh, kit.blobs, kit.runtime)
    assert report.newer[0].key in kit.files("commits/")
    fresh.close()


def test_a_backup_whose_lease_ran_out_is_not_taken_for_damage(kit: Kit) -> None:
    stream = kit.create("iot/raw")
    kit.append(stream, [100])

    class Slow(MemoryBlobs):
        """The first part of the manifest takes for ever; meanwhile the blob is collected."""

        def put(self, key: str, chunks: object) -> None:
            super().put(key, chunks)  # type: ignore[arg-type]
            if key.startswith("manifests/") and kit.files("commits/"):
                kit.drop(stream)
                collect_for_long(kit)

    with pytest.raises(LeaseExpired):
        backup(kit.catalog, kit.blobs, Slow(), kit.runtime)


def test_two_backups_may_begin_in_an_empty_place_at_once(kit: Kit) -> None:
    kit.create("iot/raw")
    place = MemoryBlobs()

    class Late(MemoryBlobs):
        """Another backup begins behind the first look."""

        looked = False

        def size(self, key: str) -> int | None:
            if not self.looked:
                self.looked = True
                return None
            return place.size(key)

        def __getattribute__(self, name: str) -> object:
            if name in ("put", "get", "list", "delete"):
                return getattr(place, name)
            return super().__getattribute__(name)

    backup(kit.catalog, kit.blobs, place, kit.runtime)
    backup(kit.catalog, kit.blobs, Late(), kit.runtime)
    assert newest_backup(place).rows("streams") == 1
