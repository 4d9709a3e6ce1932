"""Who may open what a store writes: its owner alone, unless the owner says otherwise."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.settings import Settings
from anabranch.store import rebuild, restore


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The umask of somebody who shares everything."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """The modes of all files and folders, by path."""
    found = [root, *sorted(root.rglob("*"))]
    return {str(path.relative_to(root)): oct(stat.S_IMODE(path.stat().st_mode)) for path in found}


def used(folder: Path, *, shared_files: bool = False) -> None:
    """A store with blobs of both tiers, a manifest, a backup and an archive beside it."""
    with ab.connect(folder, settings=Settings(shared_files=shared_files), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        store.writer("s/a").write(b"x" * 100_000).result()
        store.compact(force=True)
        store.writer("s/a").write(b"x" * 100_000).result()
        store.export_manifest()
        store.backup(folder.parent / "backup")
        store.archives.create("s/a", folder.parent / "archive")
        assert {path.suffix for path in folder.rglob("*.db-*")} <= {".db-wal", ".db-shm"}
        assert_owner_only(folder) if not shared_files else None
        assert any(path.name.endswith("-wal") for path in folder.iterdir())


def assert_owner_only(folder: Path) -> None:
    for path, mode in modes(folder).items():
        assert mode == ("0o700" if (folder / path).is_dir() else "0o600"), (path, mode)


def test_all_that_a_new_store_makes_is_its_owners_alone(tmp_path: Path) -> None:
    used(tmp_path / "a" / "river")
    for name in ("river", "backup", "archive"):
        assert_owner_only(tmp_path / "a" / name)
    restore(tmp_path / "a" / "backup", tmp_path / "other")
    assert_owner_only(tmp_path / "other")
    rebuild(tmp_path / "a" / "river", force=True)
    assert_owner_only(tmp_path / "a" / "river")


def test_a_folder_that_is_there_keeps_its_mode_and_what_is_made_in_it_is_the_owners(tmp_path: Path) -> None:
    (tmp_path / "river").mkdir(mode=0o755)
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
    found = modes(tmp_path / "river")
    assert found.pop(".") == "0o755"
    assert set(found.values()) == {"0o600", "0o700"}


def test_a_shared_store_honours_the_umask_and_later_processes_know_it(tmp_path: Path) -> None:
    used(tmp_path / "river", shared_files=True)
    with ab.connect(tmp_path / "river", create=True) as store:  # without the setting
        store.writer("s/a").write(b"y" * 100_000).result()
    folder = tmp_path / "river"
    for path, mode in modes(folder).items():
        assert int(mode, 8) & 0o777 == (0o775 if (folder / path).is_dir() else 0o664), (path, mode)


def test_a_folder_with_the_set_group_id_bit_is_shared(tmp_path: Path) -> None:
    (tmp_path / "river").mkdir()
    (tmp_path / "river").chmod(0o2770)
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
    assert (tmp_path / "river" / "catalog.db").stat().st_mode & 0o777 == 0o664


def test_keys_are_never_shared(tmp_path: Path) -> None:
    from tests.cli.kit import Line

    Line(tmp_path / "river")("key", "new", tmp_path / "river.keys")
    assert stat.S_IMODE((tmp_path / "river.keys").stat().st_mode) == 0o600
