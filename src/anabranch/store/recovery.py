"""Creating a store from a backup, or its catalog from the last manifest among its blobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.core.redact import shown_address
from anabranch.errors import (
    AlreadyExists,
    InvalidArgument,
)
from anabranch.log.attachments import unconfirmed
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.recovery.backup import BackupReport, fetch_blobs, newest_backup
from anabranch.log.recovery.rebuild import RebuildReport
from anabranch.log.recovery.rebuild import rebuild as rebuild_catalog
from anabranch.log.recovery.reload import is_empty, reload
from anabranch.runtime.folders import make_folder, path_text
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store.addresses import POSTGRES, folder_of
from anabranch.store.open_postgres import open_postgres
from anabranch.store.storage import open_blobs, open_tiers


def restore(
    backup: str | os.PathLike[str],
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    progress: ProgressCallback = no_progress,
) -> BackupReport:
    """Create a store from a backup (see `Store.backup`). The catalog may be of either kind, whatever was backed up; the
    addresses are those of `connect`. The result is a whole store or none: an interrupted restore is started again and
    continues.

    Raises NotFound if there is no backup, AlreadyExists if something is at the new address, BlobMissing and CorruptBlob
    if the backup is damaged, and what `connect` raises.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    source = open_blobs(backup, runtime, create=False)
    manifest = newest_backup(source)
    with _place(url, blobs, history, runtime) as (folder, target):
        if folder is not None:
            from anabranch.catalog.sqlite.replace import CatalogFile, replace_catalog

            found = CatalogFile.in_folder(folder)
            if found.inode is not None:
                raise AlreadyExists(f"{folder} already holds a store; restore to a new location")
            make_folder(folder, shared=runtime.settings.shared_files)
            report = fetch_blobs(source, manifest, target, progress=progress)
            with replace_catalog(folder, runtime, found) as fresh:
                reload(fresh, source, manifest, _by_clock_of(fresh, runtime), progress=progress)
                return _with_unconfirmed(report, fresh)
        catalog, shown = open_postgres(path_text("the address of a store", url), runtime, create=True)
        with closing(catalog):
            with catalog.reading() as snapshot:
                if not is_empty(snapshot):
                    raise AlreadyExists(f"{shown} already holds a store; restore to a new location")
            report = fetch_blobs(source, manifest, target, progress=progress)
            reload(catalog, source, manifest, _by_clock_of(catalog, runtime), progress=progress)
            return _with_unconfirmed(report, catalog)


def _by_clock_of(catalog: Catalog, runtime: Runtime) -> Runtime:
    return replace(runtime, clock=catalog.clock)


def _with_unconfirmed(report: BackupReport, catalog: Catalog) -> BackupReport:
    with catalog.reading() as snapshot:
        return replace(report, unconfirmed=tuple(map(shown_address, unconfirmed(snapshot))))


def rebuild(
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    force: bool = False,
    store: str | None = None,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    progress: ProgressCallback = no_progress,
) -> RebuildReport:
    """Rebuild the catalog of a store from the newest sound manifest among its blobs; see
    `anabranch.log.recovery.rebuild`. End all processes that use the store first. A SQLite catalog that is replaced is
    kept beside the new one, under another name. `store` is the id of the store (`Store.id`), which must be given if
    there are manifests of several.

    Raises AlreadyExists if the catalog is sound, unless `force` is given; NotFound if there is no manifest, StoreBusy,
    and what `connect` raises.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    with _place(url, blobs, history, runtime) as (folder, target):
        if folder is not None:
            from anabranch.catalog.sqlite.replace import CatalogFile, is_unusable, replace_catalog

            found = CatalogFile.in_folder(folder)
            if not force and not is_unusable(folder, runtime):
                raise AlreadyExists(f"the catalog in {folder} is intact; pass --force to replace it")
            with replace_catalog(folder, runtime, found) as fresh:
                return rebuild_catalog(fresh, target, _by_clock_of(fresh, runtime), store=store, progress=progress)
        catalog, shown = open_postgres(path_text("the address of a store", url), runtime, create=True)
        with closing(catalog):
            with catalog.reading() as snapshot:
                used = not is_empty(snapshot)
                if used and not force and not snapshot.verify_database():
                    raise AlreadyExists(f"the catalog {shown} is intact; pass --force to replace it")
            runtime = _by_clock_of(catalog, runtime)
            return rebuild_catalog(catalog, target, runtime, wipe=used, store=store, progress=progress)


@contextmanager
def _place(
    url: str | os.PathLike[str],
    blobs: str | os.PathLike[str] | None,
    history: str | os.PathLike[str] | None,
    runtime: Runtime,
) -> Iterator[tuple[Path | None, Blobs]]:
    """Where to create a catalog (its folder, or None for PostgreSQL), and the blobs that belong to it."""
    text = path_text("the address of a store", url)
    folder = None if text.startswith(POSTGRES) else folder_of(text)
    if not blobs:
        if folder is None:
            raise InvalidArgument("a PostgreSQL catalog stores no blobs: pass their address as blobs=")
        make_folder(
            folder, shared=runtime.settings.shared_files
        )  # before its contents, whose creation would give it the umask's permissions
        blobs = folder / "blobs"
    with closing(open_tiers(blobs, history, runtime, create=True)) as opened:
        yield folder, opened
