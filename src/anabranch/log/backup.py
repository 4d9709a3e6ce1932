"""Backups: a manifest with exactly the blobs it needs, in a place of their own; and a store made of one.

A backup counts once its index is there, which is written when all blobs are. Until then the one before counts, whose
blobs are removed only after that. So whatever is cut off is simply begun again, and finds the blobs that are there.
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
from anabranch.errors import AlreadyExists, BlobMissing, CorruptBlob, InvalidArgument, NotFound
from anabranch.log import manifest as manifests
from anabranch.log.lease import Hold
from anabranch.log.manifest import Manifest
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime

MARK: Final = "backup.json"  # tells a place of backups from the blobs of a living store
_MARKED: Final = json.dumps({"anabranch": "backup", "format": 1}).encode()


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup or a restoration copied. `blobs_there` were there already, and sound; `removed` are blobs of the
    backup before that this one does not need. Sizes in bytes."""

    taken_at: Micros
    streams: int
    blobs: int
    blobs_there: int
    bytes: int
    removed: int = 0


def backup(
    catalog: Catalog, blobs: Blobs, target: Blobs, runtime: Runtime, *, progress: Watch = silent
) -> BackupReport:
    """Copy the catalog as of one moment, and the blobs it needs, to `target`, which holds one backup of one store.

    Safe beside everything else: a lease keeps the blobs from being collected meanwhile. Blobs that a former backup
    brought are not copied again; ones that a backup left unfinished are looked at first. Every checksum is verified.
    `progress` hears of rows, then of blobs. Raises InvalidArgument where `target` is something else, LeaseExpired,
    BlobMissing and CorruptBlob for a damaged store, StoreUnavailable and its kind.
    """
    _mark(target)
    with Hold(catalog, runtime, "backup", "backup", first_us=limits.BACKUP_LEASE_US) as hold:
        before = manifests.folders(target)[:1]
        manifest = manifests.write(catalog, target, runtime, progress=progress)
        sure = _sure(target, before)
        copied = _Copy(blobs, target, progress, hold)
        copied.run(manifests.named(target, manifest), sure)
        hold.confirm()
        manifests.finish(manifest, target)
    return copied.report(manifest, _tidy(target, runtime))


def _tidy(target: Blobs, runtime: Runtime) -> int:
    """Remove what the newest backup does not need; how many blobs."""
    manifests.prune(target, runtime, keep=1)
    newest = manifests.read(target, manifests.folders(target)[0])
    # Listed before one looks for another backup under way: what that one brings afterwards is not in the list.
    surplus = [
        there.key
        for row, there in manifests.beside(manifests.named(target, newest), manifests.listed(target))
        if row is None and there is not None
    ]
    if manifests.unfinished(target):
        return 0  # it may count on these blobs; or it was killed, and its beginning is removed in time
    for key in surplus:
        target.delete(key)
    return len(surplus)


def newest_backup(source: Blobs) -> Manifest:
    """The backup in a place. Raises NotFound; CorruptBlob where it is damaged."""
    if source.size(MARK) is None:
        raise NotFound("there is no backup in that place")
    manifest, damaged = manifests.newest(source)
    if manifest is None:
        for folder, why in damaged.items():
            raise CorruptBlob(keys.manifest_index(folder), why)
        raise NotFound("the backup in that place was never finished; back up again")
    return manifest


def fetch_blobs(source: Blobs, manifest: Manifest, blobs: Blobs, *, progress: Watch = silent) -> BackupReport:
    """Copy the blobs of a backup to a new place, which may hold nothing but what such a copy has left when it was cut
    off. The catalog is filled behind the last of them. Raises AlreadyExists, BlobMissing, CorruptBlob, StoreUnavailable
    and its kind."""
    for row, there in manifests.beside(manifests.named(source, manifest), manifests.listed(blobs)):
        if row is None and there is not None:
            raise AlreadyExists(f"there are other blobs already, {there.key} for one; restore to a new place")
    copied = _Copy(source, blobs, progress, None)
    copied.run(manifests.named(source, manifest), iter(()))
    return copied.report(manifest, 0)


def _mark(target: Blobs) -> None:
    """Make the place one of backups. Raises InvalidArgument where it holds something else."""
    if target.size(MARK) is not None:
        return
    other = next(iter(target.list()), None)
    if other is not None and target.size(MARK) is None:  # else another backup has just begun there
        raise InvalidArgument(f"that place holds no backup, but {other.key}: give an empty folder or prefix")
    with suppress(AlreadyExists):  # another backup begins there at the same time
        target.put(MARK, [_MARKED])


def _sure(target: Blobs, folders: list[str]) -> Iterator[dict[str, Any]]:
    """The blobs that a finished backup named: they were durable when it ended. None where it can't be read."""
    for folder in folders:
        try:
            yield from manifests.named(target, manifests.read(target, folder))
        except (BlobMissing, CorruptBlob):
            return


class _Copy:
    def __init__(self, source: Blobs, target: Blobs, progress: Watch, hold: Hold | None) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._hold = hold
        self.blobs = self.there = self.bytes = 0

    def run(self, needed: Iterator[dict[str, Any]], sure: Iterator[dict[str, Any]]) -> None:
        """Copy what is needed; of what is there, the `sure` need not be read again."""
        known = next(sure, None)
        for row, there in manifests.beside(needed, manifests.listed(self._target)):
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
            if there.size == row["size"] and (sure or self._sound(row)):
                self.there += 1
                return
            self._target.delete(key)  # cut off in the midst
        size = self._source.size(key)
        if size is None:
            if self._hold is not None:
                self._hold.confirm()  # or it is gone by right, and nothing is damaged
            raise BlobMissing(key)
        if size != row["size"]:  # a file that was cut short must not be mapped
            raise CorruptBlob(key, f"it holds {size} bytes, not {row['size']}")
        data = self._source.get(key)
        manifests.verify(row, data)
        self._target.put(key, [data])
        self.blobs += 1
        self.bytes += data.size

    def _sound(self, row: Mapping[str, Any]) -> bool:
        try:
            manifests.verify(row, self._target.get(row["key"]))
        except CorruptBlob:
            return False
        return True

    def report(self, manifest: Manifest, removed: int) -> BackupReport:
        """What was copied."""
        return BackupReport(manifest.taken_at, manifest.rows("streams"), self.blobs, self.there, self.bytes, removed)
