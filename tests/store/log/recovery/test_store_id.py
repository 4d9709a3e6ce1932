"""A store is known by its id: in its backups, its manifests and its archives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.blobs import layout
from anabranch.blobs.local import LocalBlobs
from anabranch.errors import AlreadyExists, CorruptBlob, InvalidArgument
from anabranch.log.recovery import manifest as manifests
from anabranch.runtime.ports import Runtime
from anabranch.store import Store, rebuild, restore
from anabranch.store.archives import read_archive
from tests.cli.kit import Line
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import bodies_of

Place = Callable[[str], str]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The address of a store's catalog by a name, always the same one."""
    known: dict[str, str] = {}

    def address(name: str) -> str:
        if name not in known:
            known[name] = fresh_url() if request.param == "postgres" else str(tmp_path / name)
        return known[name]

    yield address
    if request.param == "postgres":
        for url in known.values():
            drop(url)


@pytest.fixture
def stores(place: Place, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two stores with blobs of their own, each with an event that says which one it is."""
    with (
        ab.connect(place("one"), blobs=tmp_path / "one-blobs", create=True) as one,
        ab.connect(place("two"), blobs=tmp_path / "two-blobs", create=True) as two,
    ):
        for body, store in ((b"one", one), (b"two", two)):
            store.scopes.create("s")
            store.streams.create("s/a")
            store.writer("s/a").write(body).result()
        yield one, two


def test_a_backup_into_a_place_of_another_store_is_refused(
    stores: tuple[Store, Store], place: Place, tmp_path: Path
) -> None:
    one, two = stores
    one.backup(tmp_path / "backup")
    before = {file: file.read_bytes() for file in (tmp_path / "backup").rglob("*") if file.is_file()}
    with pytest.raises(InvalidArgument, match=f"the backup of store {one.id} is already there.*{two.id}"):
        two.backup(tmp_path / "backup")
    assert {file: file.read_bytes() for file in (tmp_path / "backup").rglob("*") if file.is_file()} == before
    one.backup(tmp_path / "backup")
    restore(tmp_path / "backup", place("three"), blobs=tmp_path / "three-blobs")
    with ab.connect(place("three"), blobs=tmp_path / "three-blobs", create=True) as three:
        assert three.id == one.id != two.id
        assert bodies_of(three, "s/a") == [b"one"]
        three.backup(tmp_path / "backup")  # it continues the store


def test_a_backup_of_an_older_release_belongs_to_the_store_of_its_manifest(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    one, two = stores
    one.backup(tmp_path / "backup")
    mark = tmp_path / "backup" / "backup.json"
    mark.write_text(json.dumps({"anabranch": "backup", "format": 1}))
    with pytest.raises(InvalidArgument, match=one.id):
        two.backup(tmp_path / "backup")
    one.backup(tmp_path / "backup")


def test_a_backup_that_says_no_store_is_taken_for_ones_own(
    stores: tuple[Store, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = stores
    frame = layout.frame

    def older(index: dict[str, object], *arguments: object, **more: object) -> object:
        return frame({key: value for key, value in index.items() if key != "store"}, *arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(layout, "frame", older)
        one.backup(tmp_path / "backup")
    (tmp_path / "backup" / "backup.json").write_text(json.dumps({"anabranch": "backup", "format": 1}))
    one.backup(tmp_path / "backup")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"store": 7}', '{"store": "../x"}', " " * 2_000])
def test_a_damaged_mark_of_a_backup_is_one_error(tmp_path: Path, text: str) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.backup(tmp_path / "backup")
        (tmp_path / "backup" / "backup.json").write_text(text)
        with pytest.raises(CorruptBlob, match=r"backup\.json"):
            store.backup(tmp_path / "backup")


def test_a_restore_goes_into_a_store_that_was_opened_and_never_used(
    stores: tuple[Store, Store], place: Place, tmp_path: Path
) -> None:
    one, two = stores
    one.backup(tmp_path / "backup")
    with pytest.raises(AlreadyExists):
        restore(tmp_path / "backup", place("two"), blobs=tmp_path / "new")
    with ab.connect(place("three"), blobs=tmp_path / "three-blobs", create=True) as three:
        assert three.id not in (one.id, two.id)
    if place("three").startswith("postgresql:"):  # a folder with a catalog is never restored to
        restore(tmp_path / "backup", place("three"), blobs=tmp_path / "three-blobs")
        with ab.connect(place("three"), blobs=tmp_path / "three-blobs", create=True) as three:
            assert three.id == one.id


def test_two_stores_over_one_set_of_blobs_do_not_collect_each_others(tmp_path: Path) -> None:
    urls = [fresh_url() for _ in range(2)]
    with (
        ab.connect(urls[0], blobs=tmp_path / "blobs", settings=ab.Settings(inline_bytes_max=0), create=True) as one,
        ab.connect(urls[1], blobs=tmp_path / "blobs", create=True) as two,
    ):
        one.scopes.create("s")
        one.streams.create("s/a")
        one.writer("s/a").write(b"one").result()
        one.export_manifest()
        for work in (lambda: two.collect(horizon_us=-1_000_000), two.export_manifest):
            with pytest.raises(InvalidArgument, match=f"{two.id}, are also those of the store {one.id}"):
                work()
        assert bodies_of(one, "s/a") == [b"one"]
        assert list(one.check()) == []
        one.collect()
    for url in urls:
        drop(url)


def test_where_manifests_are_of_several_stores_a_rebuild_asks_whose(tmp_path: Path) -> None:
    ids = {}
    for name in ("one", "two"):
        with ab.connect(tmp_path / name, create=True) as store:
            store.scopes.create(name)
            manifests.export(store.catalog, store.blobs, store.runtime)
            ids[name] = store.id
    one, two = (LocalBlobs(tmp_path / name / "blobs", Runtime()) for name in ("one", "two"))
    for info in two.list():
        one.put(info.key, [two.get(info.key)])
    (tmp_path / "one" / "catalog.db").unlink()
    with pytest.raises(InvalidArgument, match="several stores"):
        rebuild(tmp_path / "one")
    shown = Line(tmp_path / "one")("rebuild", "--store-id", ids["one"])
    assert "skipped" in shown.out
    assert ids["two"] in shown.out
    with ab.connect(tmp_path / "one", create=True) as store:
        assert store.id == ids["one"]
        assert [scope.name for scope in store.scopes.list()] == ["one"]


def test_a_rebuild_refuses_what_is_no_id_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ab.connect(tmp_path / "one", create=True) as store, monkeypatch.context() as older:
        older.setattr(manifests, "store_id", lambda _catalog, _runtime: None)  # as older releases wrote it
        older.setattr(manifests, "refuse_other_store", lambda *_: None)
        store.export_manifest()
    (tmp_path / "one" / "catalog.db").unlink()
    with pytest.raises(InvalidArgument, match="32 hex digits"):
        rebuild(tmp_path / "one", store="one")
    assert rebuild(tmp_path / "one", store="ab" * 16).streams == 0
    with ab.connect(tmp_path / "one") as store:
        assert store.id == "ab" * 16


def test_a_rebuilt_store_has_the_id_that_it_had(stores: tuple[Store, Store], place: Place, tmp_path: Path) -> None:
    one, _ = stores
    one.export_manifest()
    ident = one.id
    one.close()
    rebuild(place("one"), blobs=tmp_path / "one-blobs", force=True)
    with ab.connect(place("one"), blobs=tmp_path / "one-blobs", create=True) as again:
        assert again.id == ident
        again.collect()
        again.export_manifest()


def test_an_archive_says_the_store_it_was_made_in(stores: tuple[Store, Store], tmp_path: Path) -> None:
    one, two = stores
    one.archives.create("s/a", tmp_path / "archive")
    assert read_archive(tmp_path / "archive").archive.store == one.id
    assert f"in the store {one.id}" in Line(tmp_path / "none")("archive", "show", tmp_path / "archive").out
    two.archives.import_(tmp_path / "archive", as_="s/b")
    assert bodies_of(two, "s/b") == [b"one"]
