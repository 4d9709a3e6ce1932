"""Leases: long work holds the collector's horizon back while it reads or uploads blobs."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from anabranch import limits
from anabranch.catalog.port import Catalog, Lease, Writing
from anabranch.errors import AnabranchError, LeaseExpired
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.log_events import LEASE_LOST
from anabranch.runtime.ports import Runtime


class HeldLease:
    """A lease, as a context manager. While it is held, blobs that were alive at its beginning, and blobs begun since,
    are not collected. The holder must call `renew` more often than every `limits.LEASE_US`."""

    def __init__(
        self, catalog: Catalog, runtime: Runtime, kind: str, holder: str, *, initial_us: int | None = None
    ) -> None:
        """`initial_us`: how long the lease is valid before its first renewal; by default `limits.LEASE_US`."""
        self._first_us = limits.LEASE_US if initial_us is None else initial_us
        self._catalog = catalog
        self._runtime = runtime
        self._kind = kind
        self._holder = holder
        self._lease: Lease | None = None

    @classmethod
    def resumed(cls, catalog: Catalog, runtime: Runtime, lease: Lease) -> HeldLease:
        """A lease that was entered elsewhere, perhaps in another process, to be renewed and exited here."""
        hold = cls(catalog, runtime, lease.kind, lease.holder)
        hold._lease = lease
        return hold

    @property
    def lease(self) -> Lease:
        """The held lease: a small value that can be sent to other processes."""
        assert self._lease is not None
        return self._lease

    @property
    def begun_at(self) -> Micros:
        """The time that the horizon does not pass; blobs written under the lease use it as their own `begun_at`."""
        assert self._lease is not None
        return self._lease.begun_at

    def __enter__(self) -> HeldLease:
        ident = token(self._runtime.ids)
        with self._catalog.writing(f"lease {ident}") as writing:
            # Even with a clock that was set back, the work must not begin before the horizon.
            now = Micros(max(self._runtime.clock.now(), writing.horizon()))
            self._lease = Lease(ident, self._kind, self._holder, now, Micros(now + self._first_us))
            writing.put_lease(self._lease)
        return self

    def renew(self) -> None:
        """Renews the lease if a third of its time has passed. Raises LeaseExpired if the lease had run out and the
        horizon has passed its beginning."""
        assert self._lease is not None
        now = self._runtime.clock.now()
        if self._lease.expires_at - now > limits.LEASE_US * 2 // 3:
            return
        with self._catalog.writing(f"lease {self._lease.id}") as writing:
            self.verify(writing)
            lease = replace(self._lease, expires_at=Micros(now + limits.LEASE_US))
            writing.put_lease(lease)
        self._lease = lease  # only now: if the renewal fails, the next call tries again

    def verify(self, writing: Writing) -> None:
        """Raises LeaseExpired if the horizon has passed the lease, so that what it protected may be gone. Call it in
        the transaction that relies on the lease."""
        if writing.horizon() > self.begun_at:
            LEASE_LOST(lease=self.lease.id, purpose=self._kind, holder=self._holder)
            raise LeaseExpired(f"the lease of {self._kind} {self._holder} ran out before its work was done")

    def confirm(self) -> None:
        """Like `verify`, in a transaction of its own: what was alive when the lease began still exists."""
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
            # The work itself is done or has failed with its own error; the lease expires by itself.
            pass
