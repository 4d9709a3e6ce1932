"""Carrying scaling policies out: sample the load of each stream that has one, and scale it by a step where that is due."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.port import Catalog
from anabranch.core.scaling import Pace, Sample, load_of, plan_scaling, thinned
from anabranch.errors import StreamNotFound
from anabranch.log.lease import Hold
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.streams.find import need_view
from anabranch.streams.scale import apply_scale
from anabranch.streams.scaling import put_samples, rate_policies, rate_policy_of, samples_of

_LEASE: Final = "rescale"

_log = logging.getLogger("anabranch.maintenance")


@dataclass(frozen=True, slots=True)
class RescaleReport:
    """Of so many `streams` that are scaled by load, `scaled` ones got other segments."""

    streams: int = 0
    scaled: int = 0


def rescale(catalog: Catalog, runtime: Runtime, *, pace: Pace | None = None) -> RescaleReport:
    """Sample, and scale by a step, all streams that have a policy by load; a stream at a time, each in one transaction.
    To be called again and again, the more often the sooner it sees a burst. While another process is at it, nothing
    is done. Without a `pace` that of the settings."""
    now = runtime.clock.now()
    with catalog.reading() as txn:
        chosen = rate_policies(txn)
        busy = any(lease.kind == _LEASE and lease.expires_at > now for lease in txn.leases())
    if not chosen or busy:
        return RescaleReport()
    scaled, pace = 0, pace or _pace(runtime.settings)
    with Hold(catalog, runtime, _LEASE, f"{len(chosen)} stream(s)") as hold:
        for stream, _ in chosen:
            hold.renew()
            scaled += _step(catalog, runtime, stream, pace)
    if scaled:
        _log.info("scaling by load: %d of %d streams got other segments", scaled, len(chosen))
    return RescaleReport(len(chosen), scaled)


def _pace(settings: Settings) -> Pace:
    return Pace(
        settings.scaling_short_us,
        settings.scaling_long_us,
        settings.scaling_split_rest_us,
        settings.scaling_merge_rest_us,
    )


def _step(catalog: Catalog, runtime: Runtime, stream: StreamId, pace: Pace) -> bool:
    now = runtime.clock.now()
    try:
        with catalog.writing(stream) as txn:
            policy, view = rate_policy_of(txn, stream), need_view(txn, stream)
            if policy is None or view.info.sealed:
                return False
            samples = _sampled(view, samples_of(txn, stream), now, pace)
            put_samples(txn, stream, samples)
            loads = {segment: load_of(found, policy, pace) for segment, found in samples.items()}
            plan = plan_scaling(view, policy, loads, pace)
            if plan is None:
                return False
            apply_scale(txn, view, plan, now)
            return True
    except StreamNotFound:  # deleted since
        return False


def _sampled(
    view: StreamView, before: dict[SegmentId, tuple[Sample, ...]], now: Micros, pace: Pace
) -> dict[SegmentId, tuple[Sample, ...]]:
    """The samples of the current segments, with one of now. A clock that was set back begins anew."""
    found = {}
    for segment in view.current:
        log = view.open_log(segment.id)
        assert log is not None, "a current segment of an unsealed stream has an open log"
        state = view.logs[log]
        known = before.get(segment.id, ())
        if known and known[-1].at >= now:
            known = ()
        found[segment.id] = thinned((*known, Sample(now, state.length, state.size)), pace)
    return found
