"""How the tasks of a job stage what they write, and how the driver publishes it as one unit.

With a store that the tasks can open, each stages batches in the store's blobs, under one lease of the job. Through a
broker, each writes into a transaction of its own and flushes it; the driver commits these transactions together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Lease, Writing
from anabranch.errors import AnabranchError
from anabranch.model.ids import Micros, StreamId
from anabranch.spark.pipelines.side_outputs import split
from anabranch.spark.stores import StorePlaces, open_store
from anabranch.store.engine_api import (
    HeldLease,
    NumberedUnit,
    Publication,
    StagedBatch,
    Stager,
    divided_batch,
    violating_rows,
)

if TYPE_CHECKING:
    from anabranch.remote.store import RemoteStore
    from anabranch.remote.transactions import RemoteTransaction
    from anabranch.store import Store

__all__ = ["BrokerStaging", "Guard", "JobStaging", "OwnStaging", "StagedPartition"]

Guard = Callable[[Writing, Micros], None]


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """What one task has staged: batches under a lease, or a flushed transaction; neither if there was nothing. `sides`
    are the batches of each side output, `violations` those of each stream of violations."""

    batches: tuple[StagedBatch, ...] = ()
    lease: Lease | None = None
    transaction: str | None = None
    sides: tuple[tuple[StagedBatch, ...], ...] = ()
    violations: Mapping[StreamId, tuple[StagedBatch, ...]] = field(default_factory=dict)


class ViolationStagers:
    """Stages what a task writes: events that violate checks for their streams of violations, the others for their
    own."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._stagers: dict[str, tuple[StreamId, Stager]] = {}

    def write(self, stager: Stager, rows: pa.RecordBatch) -> None:
        """Stage the rows with `stager`, except those that checks of its stream divert to a stream of violations. Raises
        as `Stager.write`."""
        if not stager.schema.diverts:
            stager.write(rows)
            return
        settings = self._store.runtime.settings
        own, others = divided_batch(rows, stager.schema, settings)
        stager.write(own)
        for name, violating in others.items():
            if name not in self._stagers:
                ident = self._store.streams.get(name).id
                self._stagers[name] = ident, self._store.stager(ident, lease=self._lease)
            side = self._stagers[name][1]
            side.write(violating_rows(violating, side.schema, name, settings))

    def finish(self) -> dict[StreamId, tuple[StagedBatch, ...]]:
        """The batches staged for each stream of violations."""
        return {ident: stager.finish() for ident, stager in self._stagers.values()}


class OwnStaging:
    """Stages into the blobs of a store that the tasks can open. One lease, which the tasks renew, protects what is
    staged. After a crash it expires, within `limits.JOB_LEASE_US` at the latest."""

    def __init__(self, places: StorePlaces, stream: StreamId, holder: str, sides: tuple[StreamId, ...] = ()) -> None:
        """With `sides`, rows go to `stream` and these as `OUTPUTS_COLUMN` says."""
        self._places = places
        self._stream = stream
        self._holder = holder
        self._sides = sides
        self._lease: Lease | None = None

    def enter(self) -> None:
        """On the driver, before the first task begins."""
        if self._lease is None:
            # No code of a sink runs before the job's last stage, whose tasks begin to renew the lease.
            hold = open_store(self._places).hold("spark", self._holder, first_us=limits.JOB_LEASE_US)
            self._lease = hold.__enter__().lease

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedPartition:
        """In a task: make the batches durable, but not visible."""
        assert self._lease is not None, "a writer enters its lease before it goes to tasks"
        hold = self.hold(self._lease)
        store, lease = open_store(self._places), self._lease
        violations = ViolationStagers(store, lease)
        stagers = [store.stager(each, lease=lease) for each in (self._stream, *self._sides)]
        for batch in batches:
            parts = split(batch, len(self._sides)) if self._sides else (batch,)
            for stager, part in zip(stagers, parts, strict=True):
                if part.num_rows:
                    violations.write(stager, part)
            hold.renew()
        staged, *sides = [stager.finish() for stager in stagers]
        return StagedPartition(staged, hold.lease, sides=tuple(sides), violations=violations.finish())

    def publish(
        self,
        partitions: Sequence[StagedPartition],
        unit: str | NumberedUnit,
        *,
        replace: bool,
        others: Sequence[Publication] = (),
        guard: Guard | None = None,
    ) -> None:
        """On the driver: make all partitions visible, in their order, unless `unit` was published before; with
        `replace` the stream then holds exactly these. `others` are published with them, unless `guard` raises in the same
        transaction. Raises as `Store.publish`."""
        staged = tuple(batch for each in partitions for batch in each.batches)
        own = [Publication(self._stream, staged, replace=replace)] if staged or replace else []
        for number, stream in enumerate(self._sides):
            batches = tuple(batch for each in partitions for batch in each.sides[number])
            own += [Publication(stream, batches)] if batches else []
        for stream in sorted({stream for each in partitions for stream in each.violations}):
            own += [Publication(stream, tuple(b for each in partitions for b in each.violations.get(stream, ())))]
        if own or others:
            open_store(self._places).publish([*own, *others], request=unit, guard=guard)

    def leave(self, partitions: Sequence[StagedPartition]) -> None:
        """On the driver, after publishing or instead of it: what was not published is given up, and the collector removes it."""
        leases = {each.lease.id: each.lease for each in partitions if each.lease is not None}
        if self._lease is not None and not leases:  # of a job whose tasks have all failed
            leases[self._lease.id] = self._lease
        for lease in leases.values():
            self.hold(lease).__exit__(None, None, None)

    def hold(self, lease: Lease) -> HeldLease:
        """The lease, to be renewed or left."""
        store = open_store(self._places)
        return HeldLease.resumed(store.catalog, store.runtime, lease)


class BrokerStaging:
    """Into transactions, through a broker: one for each attempt of a task. After a crash they expire, within
    `limits.JOB_LEASE_US`. The methods are those of `OwnStaging`; `publish` raises as `Transactions.commit_together`."""

    def __init__(self, places: StorePlaces, stream: StreamId) -> None:
        self._places = places
        self._stream = stream

    def enter(self) -> None:
        """Do nothing: each transaction has a lease of its own."""

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedPartition:
        store = self._store()
        opened: RemoteTransaction | None = None
        try:
            for batch in batches:
                if opened is None:  # most tasks of a small micro-batch have no rows
                    opened = store.transaction(lease_s=limits.JOB_LEASE_US / 1e6)
                    writer = opened.writer(store.streams.get(self._stream).name)
                writer.write_batch(batch)
            if opened is None:
                return StagedPartition()
            opened.flush()
        except BaseException:
            if opened is not None:
                with suppress(AnabranchError):  # then it expires by itself
                    opened.abort("a task of Spark failed")
            raise
        opened.close()
        return StagedPartition(transaction=opened.id)

    def publish(
        self,
        partitions: Sequence[StagedPartition],
        unit: str | NumberedUnit,
        *,
        replace: bool,
        others: Sequence[Publication] = (),
        guard: Guard | None = None,
    ) -> None:
        assert not others and guard is None, "only pipelines have these, and they need the store itself"
        idents = [each.transaction for each in partitions if each.transaction is not None]
        name, number = (unit.series, unit.number) if isinstance(unit, NumberedUnit) else (unit, None)
        if idents or replace:
            self._store().transactions.commit_together(
                idents, self._stream, request=name, number=number, replace=replace
            )

    def leave(self, partitions: Sequence[StagedPartition]) -> None:
        transactions = self._store().transactions
        for ident in filter(None, (each.transaction for each in partitions)):
            with suppress(AnabranchError):  # it is committed, or it expires by itself
                transactions.begin(ident).abort("a job of Spark was given up")

    def _store(self) -> RemoteStore:
        return cast("RemoteStore", open_store(self._places))


JobStaging: TypeAlias = OwnStaging | BrokerStaging
"""Stages the output of one job to one stream. Made on the driver, and pickled to its tasks."""
