"""Backups and restorations of living stores: beside a writer of another process, beside upkeep, killed in the midst."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.sqlite import replace
from anabranch.catalog.sqlite.adapter import FILE
from anabranch.errors import CorruptCatalog, StoreNotFound
from anabranch.log.progress import ProgressCallback
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import new_key_line
from anabranch.store import rebuild, restore
from tests import s3_server
from tests.process.children import Child, Tell, pour, stored, verify
from tests.store.helpers import sound
from tests.store.log.recovery.test_recovery import Place, contents, fill, opened, rows


def _dying(calls: int) -> ProgressCallback:
    """A watch that ends its process by kill -9 at the given call."""
    left = [calls]

    def watch(what: str, done: int, total: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def back_up(tell: Tell, river: Path, place: Path, calls: int) -> None:
    with opened({"url": river}) as store:
        store.backup(place, progress=_dying(calls))
    tell("done")


def put_back(tell: Tell, place: Path, river: Path, calls: int) -> None:
    restore(place, river, progress=_dying(calls))
    tell("done")


def die_while_swapping(tell: Tell, place: Path, river: Path, calls: int) -> None:
    replace._sync = lambda path: os.kill(os.getpid(), signal.SIGKILL)  # between the old file's going and the new one's
    rebuild(river, force=True)
    tell("done")


def until_done(
    tmp_path: Path, stride: int, work: Callable[..., None], *arguments: object, between: Callable[[], None]
) -> int:
    """Let children do the work, each killed so many steps later than the one before, until one comes to its end."""
    for calls in range(1, 200, stride):
        child = Child(tmp_path, f"{work.__name__}-{calls}", work, *arguments, calls)
        code = child.join()
        if code == 0:
            return calls
        assert code == -signal.SIGKILL, child.lines()
        between()
    raise AssertionError("no end")


@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_backups_and_restorations_leave_the_old_or_nothing(tmp_path: Path, stride: int) -> None:
    river, place, copy = tmp_path / "river", tmp_path / "backup", tmp_path / "copy"
    with opened({"url": river}) as store:
        fill(store)
        store.backup(place)
        first = contents(store)
        with store.writer("iot/raw") as writer:
            for step in range(3):
                writer.write_batch(rows(7_000 + 500 * step, 500)).result(120)
        store.compact(force=True)
        second = contents(store)
    tries = [0]

    def old_or_new() -> None:
        tries[0] += 1
        there = tmp_path / f"look-{tries[0]}"
        restore(place, there)
        with opened({"url": there}) as store:
            assert contents(store) in (first, second)

    assert until_done(tmp_path, stride, back_up, river, place, between=old_or_new) > 10

    def no_store() -> None:
        assert not (copy / FILE).exists()
        with pytest.raises((StoreNotFound, CorruptCatalog)):  # nothing yet, or blobs without a catalog
            ab.connect(copy, create=False)

    assert until_done(tmp_path, stride, put_back, place, copy, between=no_store) > 10
    assert not list(copy.glob("catalog.new-*"))
    with opened({"url": copy}) as store:
        assert contents(store) == second
        assert sound(store)


@pytest.mark.process
@pytest.mark.chaos
def test_a_rebuild_killed_while_it_swaps_files_is_begun_again(tmp_path: Path) -> None:
    river = tmp_path / "river"
    with opened({"url": river}) as store:
        fill(store)
        before = contents(store)
        store.export_manifest()
    child = Child(tmp_path, "swap", die_while_swapping, river, river, 0)
    assert child.join() == -signal.SIGKILL
    with pytest.raises(ab.errors.AnabranchError):
        ab.connect(river, create=True)
    rebuild(river)
    with opened({"url": river}) as store:
        assert contents(store) == before


@pytest.mark.slow
@pytest.mark.process
def test_a_backup_beside_a_writer_has_a_beginning_of_each_key(tmp_path: Path) -> None:
    river, stop = tmp_path / "river", tmp_path / "stop"
    with ab.connect(river, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/all", scaling=2)
        writer = Child(tmp_path, "writer", pour, river, "s/all", "writer", 7, stop)
        writer.wait_for("ack")
        for number in range(3):
            told = [line for line in writer.lines() if line[0] == "ack"]
            store.backup(tmp_path / "backup")
            there = tmp_path / f"copy-{number}"
            restore(tmp_path / "backup", there)
            with ab.connect(there, create=False) as copy:
                assert sound(copy)
                latest: dict[int, int] = {}
                found = {}
                for _, count, pointer in stored(copy, "s/all"):
                    found[count] = str(pointer)
                    key = count % 4
                    assert count == latest.get(key, key - 4) + 4, "a hole in a key"
                    latest[key] = count
                for _, acked, place in told:
                    assert found[int(acked)] == place, "acknowledged before the backup, and not in it"
        stop.touch()
        assert writer.join() == 0
        verify(store, "s/all", [writer])


def test_what_is_collected_meanwhile_is_in_the_backup_all_the_same(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        before = contents(store)
        files = {path for path in (tmp_path / "river" / "blobs").rglob("*") if path.is_file()}
        seen: list[str] = []

        def upkeep(what: str, done: int, total: int) -> None:
            if what == "blobs" and "blobs" not in seen:
                for info in store.streams.list():
                    if not info.sealed:
                        store.streams.truncate(info.name, store.cuts.tail(info.name))
                store.compact(force=True)
                for _ in range(3):
                    store.collect(horizon_us=0)
            seen.append(what)

        store.backup(tmp_path / "backup", progress=upkeep)
        assert "blobs" in seen
        for _ in range(3):
            store.collect(horizon_us=0)
        left = {path for path in (tmp_path / "river" / "blobs").rglob("*") if path.is_file()}
        assert files - left, "the collector never had anything to do"
    restore(tmp_path / "backup", tmp_path / "copy")
    with opened({"url": tmp_path / "copy"}) as copy:
        assert contents(copy) == before


def test_an_encrypted_store_stays_so(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(new_key_line("k1", SystemIds()))
    keys.chmod(0o600)
    with opened({"url": tmp_path / "river"}, keys=f"file:{keys}") as store:
        fill(store)
        before = contents(store)
        store.backup(tmp_path / "backup")
        store.export_manifest()
    restore(tmp_path / "backup", tmp_path / "copy")
    with pytest.raises(ab.errors.KeyMissing):
        opened({"url": tmp_path / "copy"})
    with opened({"url": tmp_path / "copy"}, keys=f"file:{keys}") as copy:
        assert contents(copy) == before
        assert sound(copy)
    (tmp_path / "river" / FILE).unlink()
    rebuild(tmp_path / "river")
    with opened({"url": tmp_path / "river"}, keys=f"file:{keys}") as store:
        assert contents(store) == before
        assert sound(store)


def test_a_backup_lies_in_an_object_store(tmp_path: Path) -> None:
    bucket = s3_server.fresh_url()
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        before = contents(store)
        first = store.backup(bucket)
        again = store.backup(bucket)
        assert (again.blobs, again.blobs_reused) == (0, first.blobs)
    there: Place = {"url": tmp_path / "copy", "blobs": s3_server.fresh_url()}
    restore(bucket, **there)  # type: ignore[arg-type]
    with opened(there) as copy:
        assert contents(copy) == before
        assert sound(copy)
        copy.export_manifest()
    for file in (tmp_path / "copy").glob("catalog.*"):
        file.unlink()
    report = rebuild(**there)  # type: ignore[arg-type]
    assert (report.broken, report.newer) == ({}, [])
    with opened(there) as copy:
        assert contents(copy) == before
