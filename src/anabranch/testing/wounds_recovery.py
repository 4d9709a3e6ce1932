"""Wounds of backups, manifests, repairs and keys; see `testing.wounds`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from anabranch.blobs import keys, layout
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Writing
from anabranch.log import collect
from anabranch.log import manifest as manifests
from anabranch.log import rebuild as rebuild_module
from anabranch.log.backup import _Copy
from anabranch.log.data_keys import KIND, Row
from anabranch.log.keyring import Keyring, Rotation
from anabranch.log.lease import Hold
from anabranch.log.rebuild import Newer, RebuildReport, rebuild
from anabranch.log.repair import Mended, _Repair
from anabranch.model.append import BlobEntry, Bounds, Part, Place, Unit
from anabranch.model.ids import LogId, Micros
from anabranch.runtime.ports import Runtime
from anabranch.testing.clients import SAVERS, Cast, recovery
from anabranch.testing.clients.maintain import collect as collects
from anabranch.testing.clients.maintain import maintain
from anabranch.testing.clients.recovery import back_up, export, made_anew
from anabranch.testing.clients.write import write
from anabranch.testing.wounds import Wound, _replaced

__all__ = ["RECOVERY_WOUNDS"]


# backups


@contextmanager
def leave_out_what_is_committed_meanwhile() -> Iterator[None]:
    """A backup copies the blobs that there were when it began, though its manifest names younger ones."""
    run, written = _Copy.run, manifests.write

    def slowly(catalog: Catalog, target: Blobs, runtime: Runtime, **more: Any) -> manifests.Manifest:
        runtime.tasks.sleep(0.02)
        return written(catalog, target, runtime, **more)

    def careless(self: _Copy, needed: Iterator[dict[str, Any]], sure: Iterator[dict[str, Any]]) -> None:
        begun_at = 1 << 62 if self._hold is None else self._hold.begun_at
        run(self, (row for row in needed if (keys.begun_at(row["key"]) or 0) < begun_at), sure)

    with _replaced(_Copy, "run", careless), _replaced(manifests, "write", slowly):
        yield


@contextmanager
def forget_the_lease() -> Iterator[None]:
    """The lease of a backup is given back at once, so nothing keeps its blobs until they are copied."""
    enter = Hold.__enter__

    def lax(self: Hold) -> Hold:
        enter(self)
        if self._kind == "backup":
            self.__exit__(None, None, None)
        return self

    with ExitStack() as planted:
        planted.enter_context(_replaced(Hold, "__enter__", lax))
        planted.enter_context(_replaced(Hold, "renew", lambda self: None))
        planted.enter_context(_replaced(Hold, "confirm", lambda self: None))
        yield


# manifests


def adopt_newer_blobs() -> AbstractContextManager[None]:
    """A rebuild appends what it finds in blobs that the manifest does not name, where it can tell the log."""

    def adopting(catalog: Catalog, blobs: Blobs, runtime: Runtime) -> RebuildReport:
        report = rebuild(catalog, blobs, runtime)
        with catalog.writing() as txn:
            for newer in report.newer:
                if newer.streams and newer.key.startswith(keys.COMMITS):
                    _adopt(txn, blobs, newer)
        return report

    return _replaced(recovery, "rebuild", adopting)


def _adopt(txn: Writing, blobs: Blobs, newer: Newer) -> None:
    # As if begun just now, or it would be refused as being behind the horizon.
    entry = BlobEntry(newer.key, newer.size, txn.horizon())
    for part in layout.read_index(newer.key, blobs.get(newer.key))["parts"]:
        log, place, untold = LogId(part["log"]), Place(part["at"], part["length"]), Bounds(None, None)
        viewers = [info for stream, _ in txn.spans_of_log(log) if (info := txn.stream(stream)) is not None]
        if viewers:
            version = viewers[0].schema_version
            adopted = Part(log, part["count"], version, place, part["checksum"], 1, untold, blob=newer.key)
            txn.append(Unit((adopted,)), now=txn.horizon(), blobs=(entry,))


def say_nothing_of_newer_blobs() -> AbstractContextManager[None]:
    """A rebuild takes what the manifest does not name for garbage."""
    return _replaced(rebuild_module, "_newer", lambda *anything: None)


def collect_what_was_reported() -> AbstractContextManager[None]:
    """The collector does not wait until somebody has decided on the blobs that a rebuild reported."""
    return _replaced(collect, "kept", lambda snapshot: range(0))


# repairs and keys


def end_every_lease() -> AbstractContextManager[None]:
    """A repair ends the leases that there are, whatever they hold."""

    def careless(self: _Repair, now: Micros) -> list[Mended]:
        with self._catalog.writing() as txn:
            leases = txn.leases()
            for lease in leases:
                txn.drop_lease(lease.id)
        return [Mended(f"lease {lease.id} ({lease.kind})", "it is ended") for lease in leases]

    return _replaced(_Repair, "_leases", careless)


def forget_a_key() -> AbstractContextManager[None]:
    """A rotation keeps the new data key alone, though old bytes are sealed with the ones before."""
    rotate = Keyring.rotate

    def careless(self: Keyring) -> Rotation:
        done = rotate(self)
        with self._catalog.writing() as txn:
            for piece in txn.pieces(KIND):
                if piece.name != done.data_key:
                    txn.drop_piece(KIND, piece.name)
        return done

    return _replaced(Keyring, "rotate", careless)


def wrap_another_secret() -> AbstractContextManager[None]:
    """A rotation notes the new master key of an old data key that it has not wrapped anew."""

    def careless(self: Keyring, row: Row, master: str) -> Row:
        return replace(row, master=master)

    return _replaced(Keyring, "_rewrap", careless)


_MISSING: Final = ("is missing",)
_BACKUPS: Final[Sequence[Cast]] = (
    (("write", write), ("write", write), ("back_up", back_up), ("maintain", maintain), ("collect", collects)),
)
_REBUILDS: Final[Sequence[Cast]] = (
    (("write", write), ("export", export), ("made_anew", made_anew), ("maintain", maintain), ("collect", collects)),
    (("write", write), ("made_anew", made_anew), ("maintain", maintain), ("collect", collects)),
)

RECOVERY_WOUNDS: Final = (
    Wound(leave_out_what_is_committed_meanwhile, _MISSING, casts=_BACKUPS),
    Wound(forget_the_lease, _MISSING, casts=_BACKUPS),
    Wound(adopt_newer_blobs, ("nobody wrote it", "its row says it was begun"), casts=_REBUILDS),
    Wound(say_nothing_of_newer_blobs, ("nothing was said of",), casts=_REBUILDS),
    Wound(collect_what_was_reported, ("though nobody decided on it",), casts=_REBUILDS),
    Wound(end_every_lease, ("ended a lease that held",), casts=SAVERS),
    Wound(forget_a_key, ("does not know",), casts=SAVERS, place="sealed"),
    Wound(wrap_another_secret, ("is not the one that the store was encrypted with",), casts=SAVERS, place="sealed"),
)
