"""Making a store, or its catalog, anew: of a backup, or of the last manifest among its blobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.blobs.port import Blobs
from anabranch.catalog.sqlite.adapter import FILE as CATALOG_FILE
from anabranch.errors import (
    AlreadyExists,
    InvalidArgument,
)
from anabranch.log.backup import BackupReport, fetch_blobs, newest_backup
from anabranch.log.rebuild import RebuildReport
from anabranch.log.rebuild import rebuild as rebuild_catalog
from anabranch.log.reload import is_empty, reload
from anabranch.log.watch import Watch, silent
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store.places import POSTGRES, folder_of, is_database, make_folder, open_blobs, open_postgres, open_tiers

if TYPE_CHECKING:
    pass


def restore(
    backup: str | os.PathLike[str],
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    progress: Watch = silent,
) -> BackupReport:
    """Make a store of a backup (see `Store.backup`), with a catalog of either kind, whatever kind was backed up. The
    places are `connect`'s. There is a whole store afterwards, or none: what was cut off is begun again and continues.

    Raises NotFound where there is no backup, AlreadyExists where something is at the new place, and what `connect` and
    `anabranch.log.backup.restore` raise.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    source = open_blobs(backup, runtime, create=False)
    manifest = newest_backup(source)
    with _place(url, blobs, history, runtime) as (folder, target):
        if folder is not None:
            if is_database(folder / CATALOG_FILE):
                raise AlreadyExists(f"there is a store in {folder} already; restore to a new place")
            make_folder(folder)
            report = fetch_blobs(source, manifest, target, progress=progress)
            from anabranch.catalog.sqlite.replace import replacing

            with replacing(folder, runtime) as fresh:
                reload(fresh, source, manifest, runtime, progress=progress)
            return report
        catalog, shown = open_postgres(os.fspath(url), runtime, create=True)
        try:
            with catalog.reading() as snapshot:
                if not is_empty(snapshot):
                    raise AlreadyExists(f"there is a store in {shown} already; restore to a new place")
            report = fetch_blobs(source, manifest, target, progress=progress)
            reload(catalog, source, manifest, runtime, progress=progress)
            return report
        finally:
            catalog.close()


def rebuild(
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    force: bool = False,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    progress: Watch = silent,
) -> RebuildReport:
    """Make the catalog of a store anew from the newest sound manifest among its blobs; see `anabranch.log.rebuild`. End
    all processes that use the store first. A SQLite catalog that is replaced stays beside the new one, under another name.

    Raises AlreadyExists where the catalog is sound, unless `force` is given; NotFound where there is no manifest,
    StoreBusy, and what `connect` raises.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    with _place(url, blobs, history, runtime) as (folder, target):
        if folder is not None:
            from anabranch.catalog.sqlite.replace import is_lost, replacing

            if not force and not is_lost(folder, runtime):
                raise AlreadyExists(f"the catalog in {folder} is sound; --force makes it anew all the same")
            with replacing(folder, runtime) as fresh:
                return rebuild_catalog(fresh, target, runtime, progress=progress)
        catalog, shown = open_postgres(os.fspath(url), runtime, create=True)
        try:
            with catalog.reading() as snapshot:
                used = not is_empty(snapshot)
                if used and not force and not snapshot.verify_database():
                    raise AlreadyExists(f"the catalog {shown} is sound; --force makes it anew all the same")
            return rebuild_catalog(catalog, target, runtime, wipe=used, progress=progress)
        finally:
            catalog.close()


@contextmanager
def _place(
    url: str | os.PathLike[str],
    blobs: str | os.PathLike[str] | None,
    history: str | os.PathLike[str] | None,
    runtime: Runtime,
) -> Iterator[tuple[Path | None, Blobs]]:
    """Where a catalog is to be made: its folder, or None for PostgreSQL; and the blobs that go with it."""
    text = os.fspath(url)
    folder = None if text.startswith(POSTGRES) else folder_of(text)
    if blobs is None:
        if folder is None:
            raise InvalidArgument("a PostgreSQL catalog holds no blobs: say where they are by blobs=")
        blobs = folder / "blobs"
    opened = open_tiers(blobs, history, runtime, create=True)
    try:
        yield folder, opened
    finally:
        opened.close()
