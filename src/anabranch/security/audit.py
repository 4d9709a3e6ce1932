"""The audit stream `_store/audit`: who managed what, and who was refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.core.redact import redacted
from anabranch.errors import AnabranchError
from anabranch.model.columns import TIME_TYPE
from anabranch.model.names import INTERNAL_SCOPE, StreamName
from anabranch.runtime.periodic import Periodic
from anabranch.streams.retention.policy import Retention

if TYPE_CHECKING:
    from anabranch.store.facade import Store

AUDIT: Final = StreamName(INTERNAL_SCOPE, "audit")
COLUMNS: Final = pa.schema(
    [
        ("at", TIME_TYPE),
        ("principal", pa.string()),
        ("verb", pa.string()),
        ("resource", pa.string()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("token", pa.string()),
        ("peer", pa.string()),
        ("count", pa.int64()),
    ]
)
DROPPED: Final = "audit.dropped"
_TEXT_CHARS: Final = 500


class AuditKey(NamedTuple):
    """What happened. Repeated notes of a round become one row with a count, so that a flood of refusals stays small."""

    principal: str
    verb: str
    resource: str | None
    outcome: str
    reason: str | None
    token: str | None
    peer: str


@dataclass(slots=True)
class _Noted:
    at: int
    count: int = 1


class Audit:
    """Writes notes to the audit stream, about once a second. `note` never waits: further notes are
    dropped while `limits.AUDIT_PENDING_MAX` notes are not written yet. A row of the stream says how many were dropped;
    `dropped` is their total number."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = store.runtime.tasks.lock()
        self._pending: dict[AuditKey, _Noted] = {}
        self._unreported = 0
        self.dropped = 0
        self._ensured = False
        self._round = Periodic(store.runtime, "audit", limits.AUDIT_FLUSH_S, self.flush)
        self._round.start()

    def note(self, key: AuditKey) -> None:
        """Add a note."""
        key = key._replace(**{name: each[:_TEXT_CHARS] for name, each in key._asdict().items() if each})
        with self._lock:
            noted = self._pending.get(key)
            if noted is not None:
                noted.count += 1
            elif len(self._pending) < limits.AUDIT_PENDING_MAX:
                self._pending[key] = _Noted(self._store.runtime.clock.now())
            else:
                self.dropped += 1
                self._unreported += 1

    def flush(self) -> None:
        """Write the pending notes. Raises what the store raises; the notes are then kept for the next round."""
        with self._lock:
            taken, self._pending = self._pending, {}
            unreported, self._unreported = self._unreported, 0
        if not taken and not unreported:
            return
        try:
            self._write(taken, unreported)
        except BaseException:
            self._give_back(taken, unreported)
            raise

    def close(self) -> None:
        """Write the pending notes; an error of the store is ignored. A second call does nothing."""
        self._round.close()
        with suppress(AnabranchError):  # earlier rounds have logged errors of the store
            self.flush()

    def _write(self, taken: dict[AuditKey, _Noted], unreported: int) -> None:
        rows = [
            {"at": noted.at, **key._asdict(), "count": noted.count}
            for key, noted in sorted(taken.items(), key=lambda item: item[1].at)
        ]
        if unreported:
            now = self._store.runtime.clock.now()
            rows.append({"at": now, "principal": "broker", "verb": DROPPED, "outcome": "dropped", "count": unreported})
        if not self._ensured:
            self._ensure()
        self._ensured = False  # if the write fails, the next round creates the stream again
        self._store.write(AUDIT, pa.Table.from_pylist(rows, schema=COLUMNS))
        self._ensured = True

    def _ensure(self) -> None:
        self._store.scopes.create(INTERNAL_SCOPE, exist_ok=True)
        kept = Retention(age_us=limits.AUDIT_KEPT_US)
        self._store.streams.create(AUDIT, schema=COLUMNS, key="principal", time="at", retention=kept, exist_ok=True)

    def _give_back(self, taken: dict[AuditKey, _Noted], unreported: int) -> None:
        with self._lock:
            self._unreported += unreported
            for key, noted in taken.items():
                newer = self._pending.get(key)
                if newer is not None:
                    newer.at, newer.count = noted.at, newer.count + noted.count
                elif len(self._pending) < limits.AUDIT_PENDING_MAX:
                    self._pending[key] = noted
                else:
                    self.dropped += noted.count
                    self._unreported += noted.count


def reason_of(error: BaseException | None) -> str | None:
    """The text of an error as the audit shows it, without secrets."""
    return None if error is None else redacted(str(error))
