"""Backups and what is restored from them; catalogs that were lost and are rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.blobs.local import LocalBlobs
from anabranch.catalog.sqlite.adapter import FILE
from anabranch.errors import AlreadyExists, CorruptBlob, InvalidArgument, NotFound
from anabranch.log.recovery import manifest as manifests
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store, restore
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import events_of, sound

SCHEMA = pa.schema([("device", pa.string()), ("n", pa.int64())])
SETTINGS = Settings(inline_bytes_max=2_000)

Place = dict[str, object]  # arguments of connect


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"device": [f"d{n % 9}" for n in numbers], "n": list(numbers)}, schema=SCHEMA)


def fill(store: Store) -> None:
    """A bit of everything: inlined, Arrow and Parquet extents, several epochs, truncated and deleted streams."""
    store.scopes.create("iot", tags={"a": "ü"})
    store.streams.create("iot/raw", schema=SCHEMA, key="device", scaling=2)
    store.streams.create("iot/gone")
    store.streams.create("iot/sealed")
    with store.writer("iot/raw", writer_id="w") as writer:
        writer.write_batch(rows(0, 500)).result(120)
        store.streams.scale("iot/raw", 3)
        writer.write_batch(rows(500, 500)).result(120)
        store.compact(force=True)
        store.streams.truncate("iot/raw", store.cuts.tail("iot/raw"))
        writer.write_batch(rows(1_000, 500)).result(120)
        store.compact(force=True)
        writer.write_batch(rows(1_500, 500)).result(120)
        writer.write({"device": "last", "n": -1}).result(120)
    with store.writer("iot/sealed") as writer:
        writer.write(b"x", key="k").result(120)
    store.streams.seal("iot/sealed")
    with store.writer("iot/gone") as writer:
        writer.write(b"y").result(120)
    store.streams.delete("iot/gone")


def contents(store: Store) -> dict[str, object]:
    """All that a user can tell of a store."""
    found: dict[str, object] = {"scopes": [str(scope) for scope in store.scopes.list()]}
    for info in store.streams.list():
        view = store.streams.view(info.id)
        events = [(str(e.pointer), e.key, e.time, e.body) for e in events_of(store, str(info.name))]
        found[str(info.name)] = (info, view.segments, view.spans, view.logs, events)
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield {"url": tmp_path / "river"}
        return
    url = fresh_url()
    yield {"url": url, "blobs": tmp_path / "river-blobs"}
    drop(url)


@pytest.fixture(params=["sqlite", "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield {"url": tmp_path / "restored"}
        return
    url = fresh_url()
    yield {"url": url, "blobs": tmp_path / "restored-blobs"}
    drop(url)


def opened(place: Place, **options: object) -> Store:
    return ab.connect(**place, settings=SETTINGS, **{"create": True} | options)  # type: ignore[arg-type]


def blobs_in(folder: Path) -> list[str]:
    return [info.key for info in manifests.list_blobs(LocalBlobs(folder, Runtime()))]


def test_what_is_restored_is_what_was_backed_up(place: Place, other: Place, tmp_path: Path) -> None:
    with opened(place) as store:
        fill(store)
        before = contents(store)
        report = store.backup(tmp_path / "backup")
        needed = {row.key for row in store_blobs(store)}
    assert report.streams == 2
    assert report.blobs == len(needed) > 2
    assert set(blobs_in(tmp_path / "backup")) == needed
    told = restore(tmp_path / "backup", **other)  # type: ignore[arg-type]
    assert (told.blobs, told.bytes) == (report.blobs, report.bytes)
    with opened(other, create=False) as copy:
        assert contents(copy) == before
        assert sound(copy)
        # It lives on, and a writer's name continues.
        with copy.writer("iot/raw", writer_id="w") as writer:
            writer.write({"device": "d1", "n": 7}).result(120)
        copy.collect(horizon_us=0)
        copy.collect(horizon_us=0)
        assert sound(copy)
        assert len(events_of(copy, "iot/raw")) == 1_002


def store_blobs(store: Store) -> list[ab.catalog.port.BlobRow]:  # type: ignore[name-defined]
    with store.catalog.reading() as snapshot:
        return [row for row in snapshot.blobs_after(0, 10_000) if snapshot.blob_in_use(row.id)]  # type: ignore[arg-type]


def test_a_second_backup_copies_what_is_new_and_drops_what_is_not_needed(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        first = store.backup(tmp_path / "backup")
        with store.writer("iot/raw") as writer:
            writer.write_batch(rows(5_000, 500)).result(120)
        second = store.backup(tmp_path / "backup")
        assert (second.blobs, second.blobs_reused, second.removed) == (1, first.blobs, 0)
        store.compact(force=True)
        third = store.backup(tmp_path / "backup")
        assert third.blobs > 0
        assert third.removed > 0
        before = contents(store)
        assert len(manifests.folders(LocalBlobs(tmp_path / "backup", Runtime()))) == 1
    restore(tmp_path / "backup", tmp_path / "restored")
    with opened({"url": tmp_path / "restored"}) as copy:
        assert contents(copy) == before


def test_a_backup_spares_what_another_one_under_way_may_count_on(tmp_path: Path) -> None:
    place = tmp_path / "backup"
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        store.backup(place)
        inner: list[int] = []

        def another(what: str, done: int, total: int) -> None:
            if what == "blobs" and not inner:
                inner.append(0)
                store.compact(force=True)
                inner[0] = store.backup(place).removed

        with store.writer("iot/raw") as writer:
            writer.write_batch(rows(5_000, 500)).result(120)
        before = contents(store)
        outer = store.backup(place, progress=another)
        assert (inner, outer.removed > 0) == ([0], True)
    restore(place, tmp_path / "copy")
    with opened({"url": tmp_path / "copy"}) as copy:
        assert contents(copy) == before
        assert sound(copy)


def test_a_backup_needs_a_place_of_its_own(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        before = blobs_in(tmp_path / "river" / "blobs")
        with pytest.raises(InvalidArgument, match="not part of a backup"):
            store.backup(tmp_path / "river" / "blobs")
        assert blobs_in(tmp_path / "river" / "blobs") == before


def test_a_damaged_store_is_not_backed_up_and_the_backup_before_stays(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        before = contents(store)
        store.backup(tmp_path / "backup")
        with store.writer("iot/raw") as writer:
            writer.write_batch(rows(5_000, 500)).result(120)
    newest = max(path for path in (tmp_path / "river" / "blobs" / "commits").iterdir())
    damage(newest)
    with opened({"url": tmp_path / "river"}) as store, pytest.raises(CorruptBlob):
        store.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with opened({"url": tmp_path / "restored"}) as copy:
        assert contents(copy) == before


def test_what_a_backup_left_cut_short_is_copied_again(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        report = store.backup(tmp_path / "backup")
        # As a kill -9 leaves it: no index, one blob cut short, one that lost bytes with the power.
        backup = tmp_path / "backup"
        next(backup.glob("manifests/*/index")).unlink()
        short, changed, *_ = sorted((backup / "commits").iterdir()) + sorted((backup / "history").iterdir())
        short.write_bytes(short.read_bytes()[:-100])
        damage(changed)
        with pytest.raises(NotFound, match="never finished"):
            restore(backup, tmp_path / "restored")
        again = store.backup(backup)
        assert (again.blobs, again.blobs_reused) == (2, report.blobs - 2)
        before = contents(store)
    restore(backup, tmp_path / "restored")
    with opened({"url": tmp_path / "restored"}) as copy:
        assert contents(copy) == before
        assert sound(copy)


def test_a_damaged_backup_leaves_no_store(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        store.backup(tmp_path / "backup")
    damage(max((tmp_path / "backup" / "history").iterdir()))
    with pytest.raises(CorruptBlob):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored" / FILE).exists()
    part = min((tmp_path / "backup" / "manifests").glob("*/*.arrow"))
    damage(part)
    with pytest.raises(CorruptBlob):
        restore(tmp_path / "backup", tmp_path / "another")
    assert not (tmp_path / "another" / FILE).exists()


def test_nothing_is_restored_over_a_store_or_beside_other_blobs(place: Place, tmp_path: Path) -> None:
    with opened({"url": tmp_path / "source"}) as store:
        fill(store)
        store.backup(tmp_path / "backup")
    with opened(place) as there:
        there.scopes.create("mine")
    with pytest.raises(AlreadyExists):
        restore(tmp_path / "backup", **place)  # type: ignore[arg-type]
    with opened(place) as there:
        assert [scope.name for scope in there.scopes.list()] == ["mine"]
    with opened({"url": tmp_path / "third"}) as third:
        fill(third)
    (tmp_path / "third" / FILE).unlink()
    with pytest.raises(AlreadyExists, match="other blobs"):
        restore(tmp_path / "backup", tmp_path / "third")
    with pytest.raises(NotFound, match="no backup"):
        restore(tmp_path / "third" / "blobs", tmp_path / "fourth")


def damage(file: Path) -> None:
    """Turn one bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)


def test_a_store_in_memory_can_be_kept(tmp_path: Path) -> None:
    with opened({"url": "memory://"}) as store:
        fill(store)
        before = contents(store)
        store.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "kept")
    with opened({"url": tmp_path / "kept"}) as kept:
        assert contents(kept) == before


# random lives

STEPS = st.sampled_from(
    ["write", "little", "scale", "truncate", "compact", "collect", "create", "seal", "delete", "backup"]
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=14), to_postgres=st.booleans())
def test_whatever_a_store_has_lived_through_its_restored_backup_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], to_postgres: bool
) -> None:
    folder = tmp_path_factory.mktemp("life")
    with opened({"url": folder / "river"}) as store:
        store.scopes.create("iot")
        for number, step in enumerate(steps):
            live(store, step, number, folder / "backup")
        before = contents(store)
        store.backup(folder / "backup")
    other: Place = {"url": fresh_url() if to_postgres else folder / "copy", "blobs": folder / "copy-blobs"}
    restore(folder / "backup", **other)  # type: ignore[arg-type]
    with opened(other, create=False) as copy:
        assert contents(copy) == before
        assert sound(copy)
        copy.backup(folder / "again")
    if to_postgres:
        drop(str(other["url"]))
    restore(folder / "again", folder / "home")
    with opened({"url": folder / "home"}) as home:
        assert contents(home) == before


def live(store: Store, step: str, number: int, place: Path) -> None:
    """One step in the life of a store, on the stream that is open and was created last."""
    open_ones = [info for info in store.streams.list() if not info.sealed]
    if step == "create" or not open_ones:
        store.streams.create(f"iot/s{number}", schema=SCHEMA, key="device", scaling=2)
        return
    stream = max(open_ones, key=lambda info: info.created_at).id
    name = str(store.streams.view(stream).info.name)
    match step:
        case "write" | "little":
            with store.writer(name) as writer:
                writer.write_batch(rows(1_000 * number, 300 if step == "write" else 2)).result(120)
        case "scale":
            store.streams.scale(name, 1 + number % 4)
        case "truncate":
            store.streams.truncate(name, store.cuts.tail(name))
        case "compact":
            store.compact(force=True)
        case "collect":
            store.collect(horizon_us=0)
        case "seal":
            store.streams.seal(name)
        case "delete":
            store.streams.seal(name)
            store.streams.delete(name)
        case "backup":
            store.backup(place)
