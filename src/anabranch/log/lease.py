"""Leases: work that takes long holds the collector's horizon back while it reads or uploads blobs."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from anabranch import limits
from anabranch.catalog.port import Catalog, Lease, Writing
from anabranch.errors import AnabranchError, LeaseExpired
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime


class Hold:
    """A lease from entering this context until leaving it. Blobs that were alive when it began, and blobs begun since,
    are not collected while it lives. Its holder calls `renew` more often than every `limits.LEASE_US`."""

    def __init__(
        self, catalog: Catalog, runtime: Runtime, kind: str, holder: str, *, first_us: int | None = None
    ) -> None:
        """`first_us`: how long it holds at first, where it can't be renewed soon; by default `limits.LEASE_US`."""
        self._first_us = limits.LEASE_US if first_us is None else first_us
        self._catalog = catalog
        self._runtime = runtime
        self._kind = kind
        self._holder = holder
        self._lease: Lease | None = None

    @classmethod
    def resumed(cls, catalog: Catalog, runtime: Runtime, lease: Lease) -> Hold:
        """A lease that was entered elsewhere, perhaps in another process, to be renewed and left here."""
        hold = cls(catalog, runtime, lease.kind, lease.holder)
        hold._lease = lease
        return hold

    @property
    def lease(self) -> Lease:
        """What is held; a small value that can travel to other processes."""
        assert self._lease is not None
        return self._lease

    @property
    def begun_at(self) -> Micros:
        """The time that the horizon does not pass; blobs written under the lease take it for their own `begun_at`."""
        assert self._lease is not None
        return self._lease.begun_at

    def __enter__(self) -> Hold:
        ident = token(self._runtime.ids)
        with self._catalog.writing(f"lease {ident}") as writing:
            # A clock that was set back must not let the work begin behind the horizon.
            now = Micros(max(self._runtime.clock.now(), writing.horizon()))
            self._lease = Lease(ident, self._kind, self._holder, now, Micros(now + self._first_us))
            writing.put_lease(self._lease)
        return self

    def renew(self) -> None:
        """Prolong the lease if a third of its time has passed. Raises LeaseExpired where it had run out and the horizon
        has passed it."""
        assert self._lease is not None
        now = self._runtime.clock.now()
        if self._lease.expires_at - now > limits.LEASE_US * 2 // 3:
            return
        with self._catalog.writing(f"lease {self._lease.id}") as writing:
            self.verify(writing)
            lease = replace(self._lease, expires_at=Micros(now + limits.LEASE_US))
            writing.put_lease(lease)
        self._lease = lease  # only now: one that could not be prolonged is tried again the next time

    def verify(self, writing: Writing) -> None:
        """Raises LeaseExpired where the horizon has passed the lease, so that what it protected may be gone. To be
        called in the transaction that relies on it."""
        if writing.horizon() > self.begun_at:
            raise LeaseExpired(f"the lease of {self._kind} {self._holder} ran out before its work was done")

    def confirm(self) -> None:
        """The same, in a transaction of its own: what was alive when the lease began is there up to now."""
        with self._catalog.writing(f"lease {self.lease.id}") as writing:
            self.verify(writing)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None
        try:
            with self._catalog.writing(f"lease {self._lease.id}") as writing:
                writing.drop_lease(self._lease.id)
        except AnabranchError:
            # The work itself is done or has failed with an error of its own; the lease runs out by itself.
            pass
