"""Applies scaling policies: samples the load of each stream that has one, and scales it by a step where that is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.port import Catalog
from anabranch.catalog.state.load import LOAD, SCALING, Load, LoadSample
from anabranch.errors import StreamNotFound
from anabranch.log.lease import HeldLease
from anabranch.log.upkeep.failures import Isolation
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.runtime.log_events import STREAMS_SCALED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.streams.directory.find import need_view
from anabranch.streams.scaling.plan import ScalingPace, load_of, plan_scaling, thin_samples
from anabranch.streams.scaling.stored import rate_policy_of
from anabranch.streams.segments import apply_scale, need_open_log

_LEASE: Final = "rescale"


@dataclass(frozen=True, slots=True)
class RescaleReport:
    """The result of a run: `streams` counts the streams that are scaled by load, `scaled` those that got other
    segments. `skipped` says why streams failed."""

    streams: int = 0
    scaled: int = 0
    skipped: tuple[str, ...] = ()


def rescale(
    catalog: Catalog, runtime: Runtime, *, pace: ScalingPace | None = None, background: bool = False
) -> RescaleReport:
    """Sample all streams that have a policy by load, and scale each by at most a step; a stream at a time, each in one
    transaction. To be called repeatedly; the more often, the sooner a burst is seen. Does nothing while another process
    runs it. Streams that fail are skipped and reported; `background` also skips those that failed recently (see
    `log.upkeep.failures`). Without a `pace`, that of the settings is used."""
    now = runtime.clock.now()
    with catalog.reading() as txn:
        chosen = txn.states(SCALING)
        busy = any(lease.kind == _LEASE and lease.expires_at > now for lease in txn.leases())
    if not chosen or busy:
        return RescaleReport()
    scaled, pace = 0, pace or _pace(runtime.settings)
    isolation = Isolation(catalog, runtime, "scale", background=background)
    with HeldLease(catalog, runtime, _LEASE, f"{len(chosen)} stream(s)") as lease:
        for stream, _ in chosen:
            lease.renew()
            if not isolation.is_backing_off(stream):
                with isolation.guard(stream):
                    scaled += _step(catalog, runtime, stream, pace)
    isolation.clear_failures()
    if scaled:
        STREAMS_SCALED(scaled=scaled, streams=len(chosen))
    return RescaleReport(len(chosen), scaled, tuple(isolation.failed))


def _pace(settings: Settings) -> ScalingPace:
    return ScalingPace(
        settings.scaling_short_us,
        settings.scaling_long_us,
        settings.scaling_split_cooldown_us,
        settings.scaling_merge_cooldown_us,
    )


def _step(catalog: Catalog, runtime: Runtime, stream: StreamId, pace: ScalingPace) -> bool:
    now = runtime.clock.now()
    try:
        with catalog.writing(stream) as txn:
            policy, view = rate_policy_of(txn, stream), need_view(txn, stream)
            if policy is None or view.info.sealed:
                return False
            load = txn.state(LOAD, stream)
            samples = _add_sample(view, {} if load is None else load.samples, now, pace)
            txn.put_state(LOAD, stream, Load(samples))
            loads = {segment: load_of(found, policy, pace) for segment, found in samples.items()}
            plan = plan_scaling(view, policy, loads, pace)
            if plan is None:
                return False
            apply_scale(txn, view, plan, now)
            return True
    except StreamNotFound:  # deleted since
        return False


def _add_sample(
    view: StreamView, before: Mapping[SegmentId, tuple[LoadSample, ...]], now: Micros, pace: ScalingPace
) -> dict[SegmentId, tuple[LoadSample, ...]]:
    """The samples of the current segments, with a new one. Restarts where the clock was set back."""
    found = {}
    for segment in view.current:
        state = need_open_log(view, segment)
        samples = before.get(segment.id, ())
        if samples and samples[-1].at >= now:
            samples = ()
        found[segment.id] = thin_samples((*samples, LoadSample(now, state.length, state.size)), pace)
    return found
