"""Loads a catalog from a manifest, in one transaction: afterwards it holds the whole manifest, or is unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch import limits
from anabranch.blobs import keys
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state import kinds
from anabranch.catalog.state.job import JOB
from anabranch.catalog.state.kind import Entry
from anabranch.catalog.state.store import ATTACHMENT, LAST, ONLY, REBUILT, STORE_ID, Rebuilt, StoreId
from anabranch.catalog.tables import TABLES
from anabranch.errors import AlreadyExists, CorruptBlob, CorruptCatalog
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.manifest import Manifest
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime


def is_empty(snapshot: Reading) -> bool:
    """True if no table of the catalog has a row, except for the store's id."""
    rows = (row for table in TABLES for row in snapshot.export(table.name)[:2])
    return all(row[:2] == (STORE_ID.name, ONLY) for row in rows)


def reload(
    catalog: Catalog,
    source: Blobs,
    manifest: Manifest,
    runtime: Runtime,
    *,
    wipe: bool = False,
    unused: bool = False,
    note: Rebuilt | None = None,
    store: str | None = None,
    progress: ProgressCallback = no_progress,
) -> None:
    """Fills an empty catalog with the rows of a manifest; `wipe` first removes what it holds. `unused`: also list
    blobs without extents. `note` is added: the blobs that a rebuilt catalog has not adopted. `store` is the id of the
    store if the manifest does not say it.

    The horizon advances to now, so that no write begun before can still be committed. Ids that the lost catalog may
    have assigned after the manifest are not assigned again. Places of attached files, and places that
    jobs name, are not contacted until they are confirmed. Raises AlreadyExists if the catalog is not empty,
    CorruptBlob, also for rows that contradict each other, and BlobMissing; then the catalog is unchanged.
    """
    total = sum(piece.rows for piece in manifest.parts)
    done = 0
    with catalog.writing() as txn:
        if wipe:
            txn.wipe()
        elif not is_empty(txn):
            raise AlreadyExists("a store already exists here, and it is not empty")
        txn.drop_state(STORE_ID, ONLY)
        for table in TABLES:
            for batch in manifests.batches(source, manifest, table.name):
                done += len(batch)
                rows = [row for row in batch if unused or table.name != "blobs" or row["checksum"] is not None]
                if table.name == "blobs":
                    # The collector of this catalog must find dead blobs itself, so that their time counts from now.
                    rows = [{**row, "dead_at": None} for row in rows]
                if table.name == "states":
                    rows = [_held_back(row) for row in rows]
                try:
                    txn.load(table.name, manifests.values(table.name, rows))
                except CorruptCatalog as exc:
                    raise CorruptBlob(keys.manifest_index(manifest.folder), str(exc)) from exc
                progress("catalog", done, total)
        txn.skip_ids(limits.REBUILD_IDS_SKIPPED)
        txn.set_horizon(Micros(max(manifest.horizon, runtime.clock.now())))
        if store is not None and txn.state(STORE_ID, ONLY) is None:
            txn.put_state(STORE_ID, ONLY, StoreId(store))
        if note is not None:
            txn.put_state(REBUILT, LAST, note)


def _held_back(row: dict[str, Any]) -> dict[str, Any]:
    """Marks a row of `states` that names places outside the store: they are not contacted until a user confirms them."""
    match row["kind"]:
        case ATTACHMENT.name:
            attachment, found = kinds.decode(Entry(**row))
            return ATTACHMENT.entry(attachment, replace(found, unconfirmed=True))._asdict()
        case JOB.name:
            job, found = kinds.decode(Entry(**row))
            return JOB.entry(job, replace(found, restored=True))._asdict()
        case _:
            return row
