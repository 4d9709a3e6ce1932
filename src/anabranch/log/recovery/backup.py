"""Backups: a manifest with exactly the blobs it needs, in a separate place; and restoring a store from one.

A backup counts once its index exists, which is written after all blobs. Until then the previous backup counts; its
blobs are removed only afterwards. So an interrupted backup is simply started again, and reuses the blobs already
copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from anabranch import limits
from anabranch.blobs import keys
from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.state.store import is_store_id
from anabranch.core.json_text import parse_object
from anabranch.errors import AlreadyExists, BlobMissing, CorruptBlob, InvalidArgument, NotFound
from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.identity import store_id
from anabranch.log.recovery.manifest import Manifest
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime

MARK: Final = "backup.json"  # distinguishes a place of backups from the blobs of a live store
_MARKED: Final = {"anabranch": "backup", "format": 1}  # and `store`, the id of the store

_MARK_BYTES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The result of a backup or a restore. `blobs_reused` existed already, intact; `removed` counts blobs of the
    previous backup that this one does not need; `unconfirmed` are places of attached files that a restored store does
    not read until they are confirmed. Sizes in bytes."""

    taken_at: Micros
    streams: int
    blobs: int
    blobs_reused: int
    bytes: int
    removed: int = 0
    unconfirmed: tuple[str, ...] = ()


def backup(
    catalog: Catalog, blobs: Blobs, target: Blobs, runtime: Runtime, *, progress: ProgressCallback = no_progress
) -> BackupReport:
    """Copies the catalog as of one moment, and the blobs it needs, to `target`, which holds one backup of one store.

    Safe in parallel with everything else: a lease protects the blobs from collection meanwhile. Blobs from a previous
    backup are not copied again; those from an unfinished one are verified first. Every checksum is verified. `progress`
    is called with rows, then with blobs. Raises InvalidArgument if `target` holds something else, such as the backup of
    another store; LeaseExpired, BlobMissing and CorruptBlob for a damaged store, StoreUnavailable and its subclasses.
    """
    _mark(target, store_id(catalog, runtime))
    with HeldLease(catalog, runtime, "backup", "backup", initial_us=limits.BACKUP_LEASE_US) as hold:
        before = manifests.folders(target)[:1]
        manifest = manifests.write(catalog, target, runtime, progress=progress)
        sure = _blobs_of_finished(target, before)
        copied = _Copy(blobs, target, progress, hold)
        copied.run(manifests.referenced_blobs(target, manifest), sure)
        hold.confirm()
        manifests.finish(manifest, target)
    return copied.report(manifest, _tidy(target, runtime))


def _tidy(target: Blobs, runtime: Runtime) -> int:
    """Removes what the newest backup does not need; returns the number of removed blobs."""
    manifests.prune(target, runtime, keep=1)
    newest = manifests.read(target, manifests.folders(target)[0])
    # Listed before the check for another backup under way, so that blobs which it copies later are not in the list.
    surplus = [
        there.key
        for row, there in manifests.join_by_key(
            manifests.referenced_blobs(target, newest), manifests.list_blobs(target)
        )
        if row is None and there is not None
    ]
    if manifests.unfinished(target):
        return 0  # the unfinished backup may rely on these blobs; if it was killed, it is pruned later
    for key in surplus:
        target.delete(key)
    return len(surplus)


def newest_backup(source: Blobs) -> Manifest:
    """The backup in a place. Raises NotFound, and CorruptBlob if it is damaged."""
    if source.size(MARK) is None:
        raise NotFound("no backup found at that location: pass the folder or prefix that anabranch backup wrote to")
    manifest, damaged = manifests.newest(source)
    if manifest is None:
        for folder, why in damaged.items():
            raise CorruptBlob(keys.manifest_index(folder), why)
        raise NotFound("the backup at that location was never finished; back up again")
    return manifest


def fetch_blobs(
    source: Blobs, manifest: Manifest, blobs: Blobs, *, progress: ProgressCallback = no_progress
) -> BackupReport:
    """Copies the blobs of a backup to a new place, which must be empty except for the remains of an interrupted copy.
    The catalog is loaded after the last blob. Raises AlreadyExists, BlobMissing, CorruptBlob, StoreUnavailable and its
    subclasses."""
    for row, there in manifests.join_by_key(manifests.referenced_blobs(source, manifest), manifests.list_blobs(blobs)):
        if row is None and there is not None:
            raise AlreadyExists(
                f"the location already holds other blobs, such as {there.key}; restore to an empty location"
            )
    copied = _Copy(source, blobs, progress, None)
    copied.run(manifests.referenced_blobs(source, manifest), iter(()))
    return copied.report(manifest, 0)


def _mark(target: Blobs, store: str) -> None:
    """Marks the place as one of backups of a store. Raises InvalidArgument if it holds something else."""
    if target.size(MARK) is None:
        other = next(iter(target.list()), None)
        if other is not None and target.size(MARK) is None:  # else another backup has just begun there
            raise InvalidArgument(
                f"that location holds {other.key}, which is not part of a backup: give an empty folder or prefix"
            )
        with suppress(AlreadyExists):  # another backup begins there at the same time
            target.put(MARK, [json.dumps({**_MARKED, "store": store}).encode()])
    _refuse_other_store(target, store)


def _refuse_other_store(target: Blobs, store: str) -> None:
    """Raises InvalidArgument if the place holds the backup of another store. A place marked by an older release belongs
    to the store of its newest manifest that says its store."""
    marked = _marked_store(target)
    other = marked if marked is not None else next(iter(manifests.stores_of(target)), None)
    if other is not None and other != store:
        raise InvalidArgument(
            f"the backup of store {other} is already there, and backing up this store ({store}) would remove it: use a "
            "separate folder or prefix"
        )


def _marked_store(target: Blobs) -> str | None:
    """The store that the place is marked with. Raises CorruptBlob."""
    if (size := target.size(MARK)) is None or size > _MARK_BYTES_MAX:
        raise CorruptBlob(MARK, "it is not the marker file of a backup")
    try:
        found = parse_object(target.get(MARK).to_pybytes().decode()).get("store")
    except ValueError as exc:
        raise CorruptBlob(MARK, f"it can't be read ({exc})") from exc
    if found is not None and not is_store_id(found):
        raise CorruptBlob(MARK, "expected the id of a store as 32 hex digits")
    return None if found is None else str(found)


def _blobs_of_finished(target: Blobs, folders: list[str]) -> Iterator[dict[str, Any]]:
    """The blobs that a finished backup named: they were durable at its end. None from a backup that can't be read."""
    for folder in folders:
        try:
            yield from manifests.referenced_blobs(target, manifests.read(target, folder))
        except (BlobMissing, CorruptBlob):
            return


class _Copy:
    def __init__(self, source: Blobs, target: Blobs, progress: ProgressCallback, hold: HeldLease | None) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._hold = hold
        self.blobs = self.there = self.bytes = 0

    def run(self, needed: Iterator[dict[str, Any]], sure: Iterator[dict[str, Any]]) -> None:
        """Copies the needed blobs that the target lacks; verifies existing ones, except those in `sure`."""
        known = next(sure, None)
        for row, there in manifests.join_by_key(needed, manifests.list_blobs(self._target)):
            if row is None:
                continue
            while known is not None and known["key"] < row["key"]:
                known = next(sure, None)
            self._one(row, there, sure=known is not None and known["key"] == row["key"])
            if self._hold is not None:
                self._hold.renew()
            self._progress("blobs", self.blobs + self.there, 0)

    def _one(self, row: Mapping[str, Any], there: BlobInfo | None, *, sure: bool) -> None:
        key = row["key"]
        if there is not None:
            if there.size == row["size"] and (sure or self._is_intact(row)):
                self.there += 1
                return
            self._target.delete(key)  # its copy was interrupted
        size = self._source.size(key)
        if size is None:
            if self._hold is not None:
                self._hold.confirm()  # if the lease expired, the blob was collected, and nothing is damaged
            raise BlobMissing(key)
        if size != row["size"]:  # a truncated file must not be mapped
            raise CorruptBlob(key, f"it holds {size} bytes, not {row['size']}")
        data = self._source.get(key)
        manifests.verify(row, data)
        self._target.put(key, [data])
        self.blobs += 1
        self.bytes += data.size

    def _is_intact(self, row: Mapping[str, Any]) -> bool:
        try:
            manifests.verify(row, self._target.get(row["key"]))
        except CorruptBlob:
            return False
        return True

    def report(self, manifest: Manifest, removed: int) -> BackupReport:
        """The report of what was copied."""
        return BackupReport(manifest.taken_at, manifest.rows("streams"), self.blobs, self.there, self.bytes, removed)
