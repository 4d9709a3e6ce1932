"""Catalogs that were lost or damaged and are rebuilt from a manifest; what the collector keeps for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.sqlite.adapter import FILE
from anabranch.errors import AlreadyExists, CorruptCatalog, FormatTooNew, NotFound, StoreBusy
from anabranch.log.recovery import manifest as manifests
from anabranch.model.append import BlobEntry, BlobLocation, Commit, Part, Refusal, Refused, TimeBounds, Unit
from anabranch.store import Store, rebuild
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import events_of, sound
from tests.store.kit import Kit
from tests.store.log.recovery.test_recovery import Place, contents, damage, fill, opened, rows, store_blobs


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield {"url": tmp_path / "river"}
        return
    url = fresh_url()
    yield {"url": url, "blobs": tmp_path / "river" / "blobs"}
    drop(url)


def lose(place: Place) -> None:
    """The catalog is gone, as if it had never been."""
    url = str(place["url"])
    if url.startswith("postgresql"):
        drop(url)
        return
    for file in Path(url).glob("catalog.*"):
        file.unlink()


def blob_files(tmp_path: Path) -> list[Path]:
    return sorted(
        path for folder in ("commits", "history") for path in (tmp_path / "river" / "blobs" / folder).glob("*")
    )


def test_a_lost_catalog_is_rebuilt_as_the_manifest_knew_it(place: Place, tmp_path: Path) -> None:
    with opened(place) as store:
        fill(store)
        before = contents(store)
        store.export_manifest()
    lose(place)
    report = rebuild(**place)  # type: ignore[arg-type]
    assert (report.streams, report.newer, report.broken, report.damaged) == (2, [], {}, {})
    assert report.unknown
    with opened(place, create=False) as store:
        assert contents(store) == before
        assert sound(store)


def test_an_older_manifest_serves_where_the_newest_has_bad_rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blobs are intact, so its checksums agree: it was written from damaged rows, or made by somebody."""
    with opened(place) as store:
        fill(store)
        before = contents(store)
        good = store.export_manifest()
        honest = manifests._put

        def bad(target: object, key: str, table: object, rows: list[tuple[object, ...]]) -> object:
            if table.name == "streams":  # type: ignore[attr-defined]
                number = [column.name for column in table.columns].index("name")  # type: ignore[attr-defined]
                rows = [(*row[:number], "../x", *row[number + 1 :]) for row in rows]
            return honest(target, key, table, rows)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(manifests, "_put", bad)
            newest = store.export_manifest()
    lose(place)
    report = rebuild(**place)  # type: ignore[arg-type]
    assert (report.manifest, list(report.damaged)) == (good.folder, [newest.folder])
    with opened(place, create=False) as store:
        assert contents(store) == before
        assert sound(store)


def test_newer_blobs_are_reported_kept_and_not_adopted(place: Place, tmp_path: Path) -> None:
    with opened(place) as store:
        fill(store)
        before = contents(store)
        manifest = store.export_manifest()
        with store.writer("iot/raw", writer_id="later") as writer:
            writer.write_batch(rows(9_000, 300)).result(120)
        store.streams.create("iot/new")
        with store.writer("iot/new") as writer:
            writer.write_batch(pa.table({"key": ["k"] * 100, "payload": [b"x" * 100] * 100})).result(120)
    lose(place)
    report = rebuild(**place)  # type: ignore[arg-type]
    assert report.taken_at == manifest.taken_at
    assert sum(newer.events for newer in report.newer) == 400
    known, strange = report.newer
    assert (known.streams, known.writers) == (("iot/raw",), ("later",))
    assert (strange.streams, strange.note) != ((), "")
    kept = blob_files(tmp_path)
    with opened(place) as store:
        assert contents(store) == before
        store.collect(horizon_us=0)
        store.collect(horizon_us=0)
        assert blob_files(tmp_path) == kept, "the collector took what was reported"
        assert store.forget_newer()
        assert not store.forget_newer()
        store.collect(horizon_us=0)
        left = {path.name for path in blob_files(tmp_path)}
        assert not any(newer.key.rpartition("/")[2] in left for newer in report.newer)
        events = [(str(e.pointer), e.key, e.time, e.body) for e in events_of(store, "iot/raw")]
        assert events == before["iot/raw"][-1]  # type: ignore[index]
        assert sound(store)


def test_a_retry_of_what_the_manifest_has_doubles_nothing(place: Place) -> None:
    with opened(place) as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw")
        with store.writer("iot/raw", writer_id="w") as writer:
            first = writer.write(b"a").result(120)
        view = store.streams.view("iot/raw")
        (log,) = view.logs
        store.export_manifest()
    lose(place)
    rebuild(**place)  # type: ignore[arg-type]
    with opened(place) as store:
        data = b"\0" * 8
        part = Part(
            log, 1, 1, BlobLocation(0, 8), 0, 1, TimeBounds(None, None), sequence=_sequence("w", 0, store), data=data
        )
        ((verdict,),) = store.catalog.commit(Commit((Unit((part,)),), store.runtime.clock.now()))
        assert (verdict.start, verdict.duplicate) == (first.offset, True)  # type: ignore[union-attr]
        part = Part(
            log, 1, 1, BlobLocation(0, 8), 0, 1, TimeBounds(None, None), sequence=_sequence("w", 5, store), data=data
        )
        ((verdict,),) = store.catalog.commit(Commit((Unit((part,)),), store.runtime.clock.now()))
        assert verdict == Refused(Refusal.GAP, 1)
        assert [event.body for event in events_of(store, "iot/raw")] == [b"a"]


def _sequence(writer: str, first: int, store: Store) -> ab.model.append.Sequence:  # type: ignore[name-defined]
    from anabranch.model.append import Sequence
    from anabranch.model.ids import LogId, WriterId

    with store.catalog.reading() as snapshot:
        progress = snapshot.progress(LogId(1), WriterId(writer))
    assert progress is not None
    return Sequence(WriterId(writer), first, progress.fence)


def test_an_upload_from_before_the_rebuild_cannot_be_committed(place: Place) -> None:
    with opened(place) as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw")
        (log,) = store.streams.view("iot/raw").logs
        began = store.runtime.clock.now()
        store.export_manifest()
    lose(place)
    rebuild(**place)  # type: ignore[arg-type]
    with opened(place) as store:
        key = "commits/0000000000000001-000000000000000000000000.arrow"
        part = Part(log, 1, 1, BlobLocation(0, 8), 0, 1, TimeBounds(None, None), blob=key)
        commit = Commit((Unit((part,)),), store.runtime.clock.now(), (BlobEntry(key, 8, began),))
        ((verdict,),) = store.catalog.commit(commit)
        assert isinstance(verdict, Refused) and verdict.reason is Refusal.EXPIRED
        # And what was created after the manifest has no log's number in the new catalog.
        store.streams.create("iot/next")
        assert min(store.streams.view("iot/next").logs) > log + limits.REBUILD_IDS_SKIPPED


def test_a_sound_catalog_is_not_rebuilt_unless_forced(place: Place) -> None:
    with opened(place) as store:
        fill(store)
        before = contents(store)
        store.export_manifest()
        store.scopes.create("later")
    with pytest.raises(AlreadyExists, match="is intact"):
        rebuild(**place)  # type: ignore[arg-type]
    with opened(place) as store:
        assert store.scopes.get("later").name == "later"
    rebuild(**place, force=True)  # type: ignore[arg-type]
    with opened(place) as store:
        assert contents(store) == before
        assert sound(store)


def test_without_a_manifest_nothing_is_rebuilt(place: Place) -> None:
    with opened(place) as store:
        fill(store)
        before = contents(store)
    with pytest.raises(NotFound, match="no manifest"):
        rebuild(**place, force=True)  # type: ignore[arg-type]
    with opened(place) as store:
        assert contents(store) == before


def test_blobs_that_are_missing_or_changed_are_reported(place: Place, tmp_path: Path) -> None:
    with opened(place) as store:
        fill(store)
        store.export_manifest()
        files = [tmp_path / "river" / "blobs" / row.key for row in store_blobs(store)]
    lose(place)
    damage(files[0])
    damage(files[-1])
    files[1].unlink()
    report = rebuild(**place)  # type: ignore[arg-type]
    assert {key.rpartition("/")[2] for key in report.broken} == {files[0].name, files[1].name, files[-1].name}
    assert "missing" in report.broken[f"{files[1].parent.name}/{files[1].name}"]


@pytest.mark.parametrize("what", ["index", "part", "part missing"])
def test_of_damaged_manifests_the_one_before_is_taken(place: Place, tmp_path: Path, what: str) -> None:
    with opened(place) as store:
        fill(store)
        before = contents(store)
        store.export_manifest()
        store.scopes.create("later")
        newest = store.export_manifest()
    lose(place)
    folder = tmp_path / "river" / "blobs" / newest.folder
    if what == "part missing":
        min(folder.glob("*.arrow")).unlink()
    else:
        damage(folder / "index" if what == "index" else max(folder.glob("*.arrow")))
    report = rebuild(**place)  # type: ignore[arg-type]
    assert list(report.damaged) == [newest.folder]
    with opened(place) as store:
        assert contents(store) == before


# SQLite's file


@pytest.mark.parametrize("how", ["noise", "empty", "cut short", "bits"])
def test_a_damaged_database_is_replaced_and_kept(tmp_path: Path, how: str) -> None:
    here: Place = {"url": tmp_path / "river"}
    with opened(here) as store:
        fill(store)
        before = contents(store)
        store.export_manifest()
    file = tmp_path / "river" / FILE
    data = file.read_bytes()
    file.write_bytes(
        {
            "noise": b"\x17" * len(data),
            "empty": b"",
            "cut short": data[: len(data) // 2],
            "bits": data[:8192] + bytes(byte ^ 0x55 for byte in data[8192:]),
        }[how]
    )
    report = rebuild(tmp_path / "river")
    assert report.broken == {}
    with opened(here) as store:
        assert contents(store) == before
        assert sound(store)
    kept = [path for path in (tmp_path / "river").glob("catalog.db.old-*") if path.suffix.startswith(".old-")]
    assert len([path for path in kept if not path.name.endswith(("-wal", "-shm"))]) == 1
    assert not list((tmp_path / "river").glob("catalog.new-*"))


def test_a_write_ahead_log_without_its_database_does_no_harm(tmp_path: Path) -> None:
    river = tmp_path / "river"
    with opened({"url": river}) as store:
        fill(store)
        before = contents(store)
        store.export_manifest()
        log = (river / f"{FILE}-wal").read_bytes()
    assert log
    (river / FILE).unlink()
    (river / f"{FILE}-wal").write_bytes(log)
    rebuild(river)
    with opened({"url": river}) as store:
        assert contents(store) == before
        assert sound(store)
    assert [path.read_bytes() for path in river.glob("catalog.db.old-*-wal")] == [log]


def test_an_open_catalog_is_not_replaced(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        store.export_manifest()
        with pytest.raises(StoreBusy):
            rebuild(tmp_path / "river", force=True)
        assert sound(store)


def test_blobs_without_a_catalog_say_how_it_is_rebuilt(tmp_path: Path) -> None:
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        store.export_manifest()
    lose({"url": tmp_path / "river"})
    with pytest.raises(CorruptCatalog, match="anabranch rebuild"):
        opened({"url": tmp_path / "river"})


# PostgreSQL's tables


def test_a_damaged_catalog_on_postgres_is_rebuilt_in_place(tmp_path: Path) -> None:
    url = fresh_url()
    here: Place = {"url": url, "blobs": tmp_path / "river" / "blobs"}
    with opened(here) as store:
        fill(store)
        before = contents(store)
        store.export_manifest()
    base, _, schema = url.rpartition("schema=")
    with psycopg.connect(base.rstrip("?&"), autocommit=True) as database:
        database.execute(f'delete from "{schema}".blobs'.encode())
    rebuild(**here)  # type: ignore[arg-type]
    with opened(here) as store:
        assert contents(store) == before
        assert sound(store)
    drop(url)


# manifests among the blobs


def test_upkeep_exports_a_manifest_from_time_to_time_and_keeps_a_few(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    stream = kit.create("iot/raw")
    kit.append(stream, [100])
    from anabranch.log.upkeep.maintenance import Maintenance

    upkeep = Maintenance(kit.catalog, kit.blobs, kit.runtime)
    seen = set()
    for _ in range(12):
        upkeep._round()
        seen.update(manifests.folders(kit.blobs))
        assert len(manifests.folders(kit.blobs)) <= limits.MANIFESTS_KEPT
        kit.clock.pass_time(1_200 * 1_000_000)
    assert len(seen) == 4, "one an hour"
    kit.close()


def test_a_manifest_cut_off_in_the_midst_does_not_count_and_is_removed_in_time(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    kit.append(kit.create("iot/raw"), [100])
    left = manifests.write(kit.catalog, kit.blobs, kit.runtime)
    assert manifests.folders(kit.blobs) == []
    manifests.export(kit.catalog, kit.blobs, kit.runtime)
    assert kit.blobs.size(left.parts[0].key) is not None, "another process may be writing it"
    kit.clock.pass_time(limits.MANIFEST_BEGUN_US + 1)
    manifests.export(kit.catalog, kit.blobs, kit.runtime)
    assert kit.blobs.size(left.parts[0].key) is None
    assert len(manifests.folders(kit.blobs)) == 2
    kit.close()


def test_a_manifest_of_a_newer_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened({"url": tmp_path / "river"}) as store, monkeypatch.context() as newer:
        fill(store)
        newer.setattr(manifests, "FORMAT", 2)
        store.export_manifest()
    lose({"url": tmp_path / "river"})
    with pytest.raises(FormatTooNew):
        rebuild(tmp_path / "river")


def test_a_large_catalog_is_cut_into_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MANIFEST_PART_BYTES", 10_000)
    with opened({"url": tmp_path / "river"}) as store:
        fill(store)
        with store.writer("iot/raw") as writer:
            for number in range(600):
                writer.write({"device": "d", "n": number}).result(120)
        before = contents(store)
        manifest = store.export_manifest()
    extents = [piece for piece in manifest.parts if piece.table == "extents"]
    assert len(extents) > 1
    lose({"url": tmp_path / "river"})
    rebuild(tmp_path / "river")
    with opened({"url": tmp_path / "river"}) as store:
        assert contents(store) == before


def test_the_collector_keeps_what_the_newest_manifest_names(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    stream = kit.create("iot/raw")
    kit.append(stream, [100])
    manifests.export(kit.catalog, kit.blobs, kit.runtime)
    (file,) = kit.files("commits/")
    from anabranch.log.upkeep.collect import collect

    def passes(micros: int) -> None:
        kit.clock.pass_time(micros)
        collect(kit.catalog, kit.blobs, kit.runtime)

    kit.drop(stream)
    for _ in range(5):
        passes(2 * limits.HORIZON_US)
    assert kit.files("commits/") == [file]
    manifests.export(kit.catalog, kit.blobs, kit.runtime)
    passes(2 * limits.HORIZON_US)
    assert kit.files("commits/") == []
    # A manifest that nobody renews holds nothing for ever.
    other = kit.create("iot/other")
    kit.append(other, [100])
    manifests.export(kit.catalog, kit.blobs, kit.runtime)
    kit.drop(other)
    passes(limits.HORIZON_US)
    passes(limits.MANIFEST_PROTECTS_US)
    assert kit.files("commits/") == []
    assert len(kit.files("manifests/")) > 0, "manifests are no orphans"
    kit.close()
