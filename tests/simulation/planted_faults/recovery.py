"""Planted faults of backups, manifests, repairs and keys; see `planted_faults.core`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from anabranch.blobs import keys, layout
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Writing
from anabranch.catalog.state.store import DATA_KEY, DataKeyRow
from anabranch.log.checking.repair import RepairAction, _Repair
from anabranch.log.keyring import Keyring, Rotation
from anabranch.log.lease import HeldLease
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery import rebuild as rebuild_module
from anabranch.log.recovery.backup import _Copy
from anabranch.log.recovery.rebuild import RebuildReport, UnlistedBlob, rebuild
from anabranch.log.upkeep import collect
from anabranch.model.append import BlobEntry, BlobLocation, Part, TimeBounds, Unit
from anabranch.model.ids import LogId, Micros
from anabranch.runtime.ports import Runtime
from tests.simulation.clients import RECOVERY, ClientMix, recovery
from tests.simulation.clients.maintain import collect as collects
from tests.simulation.clients.maintain import maintain
from tests.simulation.clients.recovery import back_up, export, made_anew
from tests.simulation.clients.write import write
from tests.simulation.planted_faults.core import PlantedFault, _replaced

__all__ = ["RECOVERY_FAULTS"]


# backups


@contextmanager
def leave_out_what_is_committed_meanwhile() -> Iterator[None]:
    """A backup copies the blobs that existed when it began, though its manifest names younger ones."""
    run, written = _Copy.run, manifests.write

    def slowly(catalog: Catalog, target: Blobs, runtime: Runtime, **more: Any) -> manifests.Manifest:
        runtime.tasks.sleep(0.02)
        return written(catalog, target, runtime, **more)

    def faulty(self: _Copy, needed: Iterator[dict[str, Any]], sure: Iterator[dict[str, Any]]) -> None:
        begun_at = 1 << 62 if self._hold is None else self._hold.begun_at
        run(self, (row for row in needed if (keys.begun_at(row["key"]) or 0) < begun_at), sure)

    with _replaced(_Copy, "run", faulty), _replaced(manifests, "write", slowly):
        yield


@contextmanager
def forget_the_lease() -> Iterator[None]:
    """The lease of a backup is released at once, so nothing protects its blobs until they are copied."""
    enter = HeldLease.__enter__

    def lax(self: HeldLease) -> HeldLease:
        enter(self)
        if self._kind == "backup":
            self.__exit__(None, None, None)
        return self

    with ExitStack() as planted:
        planted.enter_context(_replaced(HeldLease, "__enter__", lax))
        planted.enter_context(_replaced(HeldLease, "renew", lambda self: None))
        planted.enter_context(_replaced(HeldLease, "confirm", lambda self: None))
        yield


# manifests


def adopt_newer_blobs() -> AbstractContextManager[None]:
    """A rebuild appends the content of blobs that the manifest does not name, if it can determine the log."""

    def adopting(catalog: Catalog, blobs: Blobs, runtime: Runtime, **options: Any) -> RebuildReport:
        report = rebuild(catalog, blobs, runtime, **options)
        with catalog.writing() as txn:
            for newer in report.newer:
                if newer.streams and newer.key.startswith(keys.COMMITS):
                    _adopt(txn, blobs, newer)
        return report

    return _replaced(recovery, "rebuild", adopting)


def _adopt(txn: Writing, blobs: Blobs, newer: UnlistedBlob) -> None:
    # As if begun just now; otherwise it would be refused as older than the horizon.
    entry = BlobEntry(newer.key, newer.size, txn.horizon())
    for part in layout.read_index(newer.key, blobs.get(newer.key))["parts"]:
        log, place, untold = LogId(part["log"]), BlobLocation(part["at"], part["length"]), TimeBounds(None, None)
        viewers = [info for stream, _ in txn.spans_of_log(log) if (info := txn.stream(stream)) is not None]
        if viewers:
            version = viewers[0].schema_version
            adopted = Part(log, part["count"], version, place, part["checksum"], 1, untold, blob=newer.key)
            txn.append(Unit((adopted,)), now=txn.horizon(), blobs=(entry,))


def say_nothing_of_newer_blobs() -> AbstractContextManager[None]:
    """A rebuild treats blobs that the manifest does not name as garbage."""
    return _replaced(rebuild_module, "_newer", lambda *anything: None)


def collect_what_was_reported() -> AbstractContextManager[None]:
    """The collector removes blobs that a rebuild reported before they are decided on."""
    return _replaced(collect, "reported_times", lambda snapshot: range(0))


# repairs and keys


def end_every_lease() -> AbstractContextManager[None]:
    """A repair ends all leases, whatever they protect."""

    def faulty(self: _Repair, now: Micros) -> list[RepairAction]:
        with self._catalog.writing() as txn:
            leases = txn.leases()
            for lease in leases:
                txn.drop_lease(lease.id)
        return [RepairAction(f"lease {lease.id} ({lease.kind})", "removed") for lease in leases]

    return _replaced(_Repair, "_leases", faulty)


def forget_a_key() -> AbstractContextManager[None]:
    """A rotation keeps only the new data key, though old bytes are encrypted with the previous ones."""
    rotate = Keyring.rotate

    def faulty(self: Keyring) -> Rotation:
        done = rotate(self)
        with self._catalog.writing() as txn:
            for key, _ in txn.states(DATA_KEY):
                if key != done.data_key:
                    txn.drop_state(DATA_KEY, key)
        return done

    return _replaced(Keyring, "rotate", faulty)


def wrap_another_secret() -> AbstractContextManager[None]:
    """A rotation records the new master key for an old data key without wrapping that key again."""

    def faulty(self: Keyring, row: DataKeyRow, master: str) -> DataKeyRow:
        return replace(row, master=master)

    return _replaced(Keyring, "_rewrap", faulty)


_MISSING: Final = ("is missing",)
_BACKUPS: Final[Sequence[ClientMix]] = (
    (("write", write), ("write", write), ("back_up", back_up), ("maintain", maintain), ("collect", collects)),
)
_REBUILDS: Final[Sequence[ClientMix]] = (
    (("write", write), ("export", export), ("made_anew", made_anew), ("maintain", maintain), ("collect", collects)),
    (("write", write), ("made_anew", made_anew), ("maintain", maintain), ("collect", collects)),
)

RECOVERY_FAULTS: Final = (
    PlantedFault(leave_out_what_is_committed_meanwhile, _MISSING, mixes=_BACKUPS),
    PlantedFault(forget_the_lease, _MISSING, mixes=_BACKUPS),
    PlantedFault(adopt_newer_blobs, ("nobody wrote it", "its row has another begin time"), mixes=_REBUILDS),
    PlantedFault(say_nothing_of_newer_blobs, ("nothing was said of",), mixes=_REBUILDS),
    PlantedFault(collect_what_was_reported, ("though nobody decided on it",), mixes=_REBUILDS),
    PlantedFault(end_every_lease, ("ended a lease that held",), mixes=RECOVERY),
    PlantedFault(forget_a_key, ("a data key that is not in the catalog",), mixes=RECOVERY, place="sealed"),
    PlantedFault(
        wrap_another_secret, ("is not the one that the store was encrypted with",), mixes=RECOVERY, place="sealed"
    ),
)
