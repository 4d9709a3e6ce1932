"""Addresses and paths of another type are refused with what was expected; objects that stand for a path are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.store.archives import read_archive, verify_archive
from anabranch.store.recovery import rebuild, restore


class PathLike:
    """Stands for a path, and is no `pathlib.Path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


@pytest.mark.parametrize("given", [5, 2.5, b"river", ["river"], True, object()])
def test_an_address_of_another_type_is_refused(tmp_path: Path, given: Any) -> None:
    river = tmp_path / "river"
    with ab.connect(river, create=True) as store:
        store.write("iot/raw", pa.table({"n": [1]}), create=True)
        store.backup(tmp_path / "backup")
        calls: dict[str, Callable[[], object]] = {
            "url": lambda: ab.connect(given),
            "blobs": lambda: ab.connect(tmp_path / "other", blobs=given, create=True),
            "history": lambda: ab.connect(tmp_path / "other", history=given, create=True),
            "keys": lambda: ab.connect(tmp_path / "other", keys=given, create=True),
            "ca": lambda: ab.connect("anabranch+tls://127.0.0.1:1", ca=given),
            "archive": lambda: store.archives.create("iot/raw", given),
            "archive of a scope": lambda: store.archives.create_scope("iot", given),
            "signed archive": lambda: store.archives.create("iot/raw", tmp_path / "signed", sign=given),
            "import": lambda: store.archives.import_(given, as_="iot/in"),
            "attach": lambda: store.archives.attach(given, "iot/in"),
            "read": lambda: read_archive(given),
            "verify": lambda: list(verify_archive(given)),
            "backup": lambda: store.backup(given),
            "restore": lambda: restore(given, tmp_path / "restored"),
            "restored": lambda: restore(tmp_path / "backup", given),
            "rebuild": lambda: rebuild(given),
        }
        for name, call in calls.items():
            try:
                with pytest.raises(InvalidArgument, match="expected") as refused:
                    call()
            except BaseException as exc:
                exc.add_note(name)
                raise
            assert "\n" not in str(refused.value)
    assert not (tmp_path / "other").exists()


def test_objects_that_stand_for_a_path_are_taken(tmp_path: Path) -> None:
    river, blobs, history, archive = (PathLike(tmp_path / each) for each in ("river", "blobs", "history", "archive"))
    with ab.connect(river, blobs=blobs, history=history, create=True) as store:
        store.write("iot/raw", pa.table({"n": [1]}), create=True)
        store.archives.create("iot/raw", archive)
        assert list(verify_archive(archive)) == []
        read_archive(archive)
        store.backup(PathLike(tmp_path / "backup"))
