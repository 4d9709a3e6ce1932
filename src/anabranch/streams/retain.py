"""Carrying retention policies out: what a policy lets go is behind the head of its stream from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from anabranch.catalog.port import Catalog, Checkpointed
from anabranch.core import cuts
from anabranch.core.retention import Index, plan_retention
from anabranch.errors import StreamNotFound, Truncated
from anabranch.log.lease import Hold
from anabranch.log.seek import about
from anabranch.log.sizes import measure, segment_bytes
from anabranch.log.view import respanned
from anabranch.log.watch import Watch, silent
from anabranch.model.cut import Order, StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.retention import Retention
from anabranch.model.stream import StreamView
from anabranch.runtime.ports import Runtime
from anabranch.streams.find import need_view
from anabranch.streams.retention import policies
from anabranch.streams.scale import truncate_stream

_DONE: Final = "retained"  # the kind of the one piece that says when all policies were carried out last
_ALL: Final = "all"
_LEASE: Final = "retain"

CutAt = Callable[[StreamView, Micros, bool], StreamCut]

_log = logging.getLogger("anabranch.maintenance")


@dataclass(frozen=True, slots=True)
class RetainReport:
    """What was let go: of so many `streams` that have a policy, `truncated` ones lost `events`, of so many logical
    `bytes`. Files are freed by the collection that follows."""

    streams: int = 0
    truncated: int = 0
    events: int = 0
    bytes: int = 0
    seconds: float = 0.0


def retain(
    catalog: Catalog,
    runtime: Runtime,
    cut_at: CutAt,
    *,
    stream: StreamId | None = None,
    progress: Watch = silent,
) -> RetainReport:
    """Truncate one stream, or all that have a policy, to what its policy keeps now. A stream at a time, each in one
    transaction; safe beside everything else. `progress` hears of streams."""
    began = runtime.clock.monotonic()
    with catalog.reading() as txn:
        chosen = [(each, policy) for each, policy in policies(txn) if stream in (None, each)]
    report = RetainReport()
    with Hold(catalog, runtime, _LEASE, f"{len(chosen)} stream(s)") as hold:
        for done, (each, policy) in enumerate(chosen, 1):
            hold.renew()
            report = _add(report, _retain_one(catalog, runtime, cut_at, each, policy))
            progress("streams", done, len(chosen))
        if stream is None:
            with catalog.writing(_DONE) as txn:
                txn.put_piece(Checkpointed(_DONE, _ALL, {"at": hold.begun_at}))
    return replace(report, seconds=runtime.clock.monotonic() - began)


def retain_if_due(catalog: Catalog, runtime: Runtime, cut_at: CutAt) -> RetainReport | None:
    """The same in the background: where the settings want it, the last time is long enough ago, and nobody else is at
    it; else None."""
    period = runtime.settings.retention_s
    if period is None:
        return None
    now = runtime.clock.now()
    with catalog.reading() as txn:
        done = txn.piece(_DONE, _ALL)
        busy = any(lease.kind == _LEASE and lease.expires_at > now for lease in txn.leases())
        idle = not policies(txn)
    if busy or idle or (done is not None and int(str(done.value["at"])) > now - round(period * 1_000_000)):
        return None
    report = retain(catalog, runtime, cut_at)
    if report.truncated:
        _log.info("retention: %d events of %d streams let go", report.events, report.truncated)
    return report


def _add(report: RetainReport, one: RetainReport) -> RetainReport:
    return RetainReport(
        report.streams + one.streams,
        report.truncated + one.truncated,
        report.events + one.events,
        report.bytes + one.bytes,
    )


def _retain_one(catalog: Catalog, runtime: Runtime, cut_at: CutAt, stream: StreamId, policy: Retention) -> RetainReport:
    with catalog.reading() as txn:
        view = None if txn.stream(stream) is None else need_view(txn, stream)
    if view is None:  # deleted since
        return RetainReport()

    def weigh(segment: SegmentId, start: int, stop: int) -> int:
        with catalog.reading() as txn:
            return segment_bytes(txn, respanned(txn, view), segment, start, stop)

    index = Index(lambda time: cut_at(view, time, False), lambda time: about(catalog, view, time), weigh)
    now = runtime.clock.now()
    try:
        cut = plan_retention(view, policy, now=now, index=index)
        if cuts.compare(view, cuts.head_cut(view), cut) is Order.SAME:
            return RetainReport(streams=1)
        with catalog.writing(stream) as writing:
            held = need_view(writing, stream)
            gone = measure(writing, held, cuts.head_cut(held), cuts.check_cut(held, cut))
            truncate_stream(writing, held, cut, now)
    except (StreamNotFound, Truncated):  # deleted, or truncated further, by somebody else
        return RetainReport(streams=1)
    return RetainReport(1, 1, gone.events, gone.bytes)
