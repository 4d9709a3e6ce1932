"""A catalog that is replaced while other processes open the store: nobody acknowledges into the one that goes."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.sqlite import replace
from anabranch.errors import AlreadyExists, StoreUnavailable
from anabranch.log.recovery.backup import fetch_blobs
from anabranch.runtime.ports import Runtime
from anabranch.store import rebuild, recovery, restore
from tests.process.children import Child, Tell
from tests.waiting import until

_BEGUN_S = 3.0  # far longer than a child that is not kept waiting takes to open and to write


def open_and_write(tell: Tell, folder: Path) -> None:
    tell("pid", os.getpid())
    with ab.connect(folder, create=True) as store:
        store.writer("s/a").write(b"acknowledged").result()
        tell("acknowledged")
    tell("closed")


def _waits_for_the_lock(child: Child) -> bool:
    """True once the child has the lock's files open."""
    pid = next((line[1] for line in child.lines() if line[0] == "pid"), None)
    if pid is None:
        return False
    try:
        names = [each.readlink().name for each in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(name == "catalog.queue" for name in names)


@pytest.mark.slow
@pytest.mark.process
def test_who_opens_a_store_during_a_rebuild_writes_to_the_new_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "river"
    with ab.connect(folder, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        store.export_manifest()
        store.streams.create("s/lost")  # since the manifest: a rebuild forgets it
    look = replace._require_unused
    children: list[Child] = []

    def while_it_opens(file: Path) -> None:
        look(file)  # nobody has it open
        if not children:
            children.append(Child(tmp_path, "opens", open_and_write, folder))
            until(lambda: _waits_for_the_lock(children[0]))
            deadline = time.monotonic() + _BEGUN_S
            while not children[0].said("acknowledged") and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not children[0].said("acknowledged"), "it has opened the catalog that is about to be replaced"

    monkeypatch.setattr(replace, "_require_unused", while_it_opens)
    rebuild(folder, force=True)
    assert children[0].join() == 0
    with ab.connect(folder, create=True) as store:
        assert not store.streams.exists("s/lost")
        with store.reader("s/a") as reader:
            assert [event.body for event in reader] == [b"acknowledged"]
        assert list(store.check()) == []


@pytest.mark.process
def test_a_store_that_is_made_where_one_is_being_restored_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ab.connect(tmp_path / "old", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        store.backup(tmp_path / "backup")

    def meanwhile(*arguments: object, **options: object) -> object:
        with ab.connect(tmp_path / "new", create=True) as other:
            other.scopes.create("mine")
        return fetch_blobs(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "fetch_blobs", meanwhile)
    with pytest.raises(AlreadyExists, match="at the same time"):
        restore(tmp_path / "backup", tmp_path / "new")
    with ab.connect(tmp_path / "new", create=False) as other:
        assert [str(scope.name) for scope in other.scopes.list()] == ["mine"]


def test_of_two_rebuilds_the_second_does_not_replace_what_the_first_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "river"
    with ab.connect(folder, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        store.export_manifest()
    (folder / "catalog.db").unlink()
    lost = replace.is_unusable

    def meanwhile(where: Path, runtime: Runtime) -> bool:
        found = lost(where, runtime)
        monkeypatch.setattr(replace, "is_unusable", lost)
        rebuild(folder)
        with ab.connect(folder, create=True) as store:
            store.writer("s/a").write(b"since").result()
        return found

    monkeypatch.setattr(replace, "is_unusable", meanwhile)
    with pytest.raises(AlreadyExists, match="at the same time"):
        rebuild(folder)
    with ab.connect(folder, create=True) as store, store.reader("s/a") as reader:
        assert [event.body for event in reader] == [b"since"]


def test_nothing_is_acknowledged_into_a_catalog_that_was_deleted_or_replaced(tmp_path: Path) -> None:
    store = ab.connect(tmp_path / "river", create=True)
    store.scopes.create("s")
    store.streams.create("s/a")
    writer = store.writer("s/a")
    writer.write(b"before").result()
    shutil.move(tmp_path / "river" / "catalog.db", tmp_path / "elsewhere.db")
    with pytest.raises(StoreUnavailable, match="deleted or replaced while it was open"):
        writer.write(b"after").result()
    with pytest.raises(StoreUnavailable, match="Open the store again"):
        store.scopes.create("t")
    with suppress(StoreUnavailable):
        store.close()
