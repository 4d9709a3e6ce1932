"""A catalog within one transaction of another one: several changes, each of which would be a transaction of its own, are
made together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anabranch.catalog.port import Catalog, Reading, StreamTail, Subject, Writing
from anabranch.errors import Conflict
from anabranch.model.append import Commit, Verdict
from anabranch.runtime.clock import Clock


class JoinedCatalog:
    """`catalog.port.Catalog` within `transaction`, which has no subject: every transaction that is begun here is part of
    it, and is durable when it is. For the thread that has begun it, until it ends.

    An error that leaves a transaction makes `failed` true, because its changes can't be undone alone: the owner of the
    outer transaction must then roll that back. All further transactions raise Conflict."""

    def __init__(self, catalog: Catalog, transaction: Writing) -> None:
        self._catalog = catalog
        self._transaction = transaction
        self._failure: Exception | None = None

    @property
    def failed(self) -> bool:
        """True if the outer transaction must not be committed."""
        return self._failure is not None

    def require_sound(self) -> None:
        """Raises Conflict if the outer transaction must not be committed."""
        if self._failure is not None:
            raise Conflict(f"an earlier change of the transaction failed: {self._failure}") from self._failure

    @property
    def clock(self) -> Clock:
        return self._catalog.clock

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """See the port. Includes what the transaction has changed so far."""
        self.require_sound()
        try:
            yield self._transaction
        except Exception as exc:
            error = self._catalog.translated(exc)
            if error is exc:
                raise
            self._failure = error  # the database's own errors may end its transaction
            raise error from exc

    @contextmanager
    def writing(self, subject: Subject | None = None) -> Iterator[Writing]:
        """See the port. The outer transaction excludes all others, so the subject only says what to lock first."""
        self.require_sound()
        try:
            if isinstance(subject, StreamTail):
                self._transaction.logs([subject.log])
            yield self._transaction
        except Exception as exc:
            self._failure = self._catalog.translated(exc)
            if self._failure is exc:
                raise
            raise self._failure from exc

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        """See the port. Durable when the transaction is."""
        with self.writing() as txn:
            return tuple(txn.append(unit, now=commit.now, blobs=commit.blobs) for unit in commit.units)

    def token(self) -> int:
        return self._catalog.token()

    def on_change(self, changed: Callable[[], None]) -> bool:
        """See the port. Nothing is reported before the transaction ends."""
        return False

    def translated(self, error: Exception) -> Exception:
        return self._catalog.translated(error)

    def close(self) -> None:
        """See the port. The transaction's owner ends it."""
