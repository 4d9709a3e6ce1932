"""A catalog made of a manifest, in one transaction: it holds the whole manifest, or what it held before."""

from __future__ import annotations

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Checkpointed, Reading
from anabranch.catalog.tables import TABLES
from anabranch.errors import AlreadyExists
from anabranch.log import manifest as manifests
from anabranch.log.manifest import Manifest
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime

# The piece in which a rebuilt catalog keeps which blobs it has not adopted; see `anabranch.log.rebuild`.
KIND, NAME = "rebuilt", "last"


def is_empty(snapshot: Reading) -> bool:
    """True if no table of the catalog has a row."""
    return not any(snapshot.export(table.name) for table in TABLES)


def reload(
    catalog: Catalog,
    source: Blobs,
    manifest: Manifest,
    runtime: Runtime,
    *,
    wipe: bool = False,
    unused: bool = False,
    note: Checkpointed | None = None,
    progress: Watch = silent,
) -> None:
    """Fill an empty catalog with the rows of a manifest; `wipe` removes what it holds first. `unused`: list also blobs
    that no extent lies in. `note` is put beside the pieces.

    The horizon advances to now, so that nothing that began to be written before can still be committed, and ids that
    another life of the catalog may have given since are not given again. Raises AlreadyExists where the catalog is not
    empty, CorruptBlob, BlobMissing.
    """
    total = sum(piece.rows for piece in manifest.pieces)
    done = 0
    with catalog.writing() as txn:
        if wipe:
            txn.wipe()
        elif not is_empty(txn):
            raise AlreadyExists("there is a store already, and it is not empty")
        for table in TABLES:
            for batch in manifests.batches(source, manifest, table.name):
                done += len(batch)
                rows = [row for row in batch if unused or table.name != "blobs" or row["checksum"] is not None]
                if table.name == "blobs":
                    # How long a blob has been dead counts for the collector that found it.
                    rows = [{**row, "dead_at": None} for row in rows]
                txn.load(table.name, manifests.values(table.name, rows))
                progress("catalog", done, total)
        txn.skip_ids(limits.REBUILD_IDS_SKIPPED)
        txn.set_horizon(Micros(max(manifest.horizon, runtime.clock.now())))
        if note is not None:
            txn.put_piece(note)
