"""Metrics in Prometheus text format: what reader groups and pipelines have still to read, what retention keeps for
groups, the status of watermarks, the size of the store, and streams with failing upkeep.

All values are read from the store on each call; nothing is counted in between. So any process can export them, and all
export the same. Source of the format: Prometheus, text-based exposition format, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from anabranch.core.watermarks import WatermarkStatus
from anabranch.errors import GroupNotFound, StreamNotFound
from anabranch.export import pipelines, store_size
from anabranch.export.sample import MetricSample
from anabranch.store import Store, Subscriber

if TYPE_CHECKING:
    from anabranch.groups.group import ReaderGroup

_HELP: Final = {
    "anabranch_group_unread_events": "Events that the reader group has not read yet.",
    "anabranch_group_unread_bytes": "Logical bytes that the reader group has not read yet.",
    "anabranch_group_segment_unread_events": "Unread events in one segment; only for segments that have any.",
    "anabranch_group_segment_unread_bytes": "Unread logical bytes in one segment; only for segments that have any.",
    "anabranch_group_readers": "Readers that are open, or not yet known to be dead.",
    "anabranch_group_unassigned_segments": "Segments to be read that no reader has.",
    "anabranch_subscriber_kept_events": "Events that the stream's retention keeps for the reader group, a subscriber.",
    "anabranch_subscriber_kept_bytes": "Logical bytes that the stream's retention keeps for the reader group.",
    "anabranch_subscriber_passed_events": "Events that retention removed before the group, a subscriber that lagged, had read them.",
    "anabranch_subscriber_passed_bytes": "Logical bytes that retention removed before the group had read them.",
    "anabranch_watermark_time_seconds": "The watermark: seconds since 1970 up to which the stream is complete.",
    "anabranch_watermark_lag_seconds": "How far the watermark is behind the newest event, in event time.",
    "anabranch_watermark_still_seconds": "For how long the watermark has not advanced.",
    "anabranch_watermark_writers": "Writers that noted a time and have not ended.",
    "anabranch_watermark_idle_writers": "Silent writers, for which the watermark does not wait.",
    **pipelines.HELP,
    **store_size.HELP,
    "anabranch_upkeep_failures": "How often a task of upkeep has failed for the stream in a row.",
    "anabranch_upkeep_failed_since_seconds": "When the task of upkeep first failed: seconds since 1970.",
}


def exposition(store: Store) -> str:
    """All metrics of a store as text. Reads some catalog rows for each segment of each group's streams, and for each file,
    independent of how much they hold."""
    found = list(samples(store))
    lines = []
    for metric, help_text in _HELP.items():
        lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge"]
        lines += [_line(sample) for sample in found if sample.metric == metric]
    return "\n".join([*lines, ""])


def samples(store: Store) -> Iterator[MetricSample]:
    """The values, group by group and stream by stream. Groups that are deleted meanwhile, or whose streams are deleted,
    are left out."""
    for name in store.groups.list():
        try:
            yield from list(_of_group(store.groups.open(name)))
        except (GroupNotFound, StreamNotFound):
            continue
    for subscriber in store.subscribers.list():
        yield from _of_subscriber(subscriber)
    for status in store.watermarks.statuses():
        yield from _of_watermark(status)
    yield from pipelines.pipeline_samples(store)
    yield from store_size.size_samples(store)
    for failure in store.upkeep_failures():
        failing = (("stream", failure.name), ("task", failure.task))
        yield MetricSample("anabranch_upkeep_failures", failing, failure.times)
        yield MetricSample("anabranch_upkeep_failed_since_seconds", failing, failure.since / 1e6)


def _of_group(group: ReaderGroup) -> Iterator[MetricSample]:
    unread, distribution = group.unread(), group.distribution()
    for name, cut in sorted(group.cut().items()):
        labels = (("group", group.name), ("stream", name))
        behind = {each.segment: counts for each, counts in unread.segments.items() if each.stream == cut.stream}
        yield MetricSample("anabranch_group_unread_events", labels, sum(events for events, _ in behind.values()))
        yield MetricSample("anabranch_group_unread_bytes", labels, sum(size for _, size in behind.values()))
        for segment, (events, size) in sorted(behind.items()):
            of_segment = (*labels, ("segment", str(segment)))
            yield MetricSample("anabranch_group_segment_unread_events", of_segment, events)
            yield MetricSample("anabranch_group_segment_unread_bytes", of_segment, size)
    own = (("group", group.name),)
    yield MetricSample("anabranch_group_readers", own, len(distribution.readers))
    yield MetricSample("anabranch_group_unassigned_segments", own, len(distribution.unassigned))


def _of_subscriber(subscriber: Subscriber) -> Iterator[MetricSample]:
    labels = (("group", subscriber.group), ("stream", subscriber.stream))
    yield MetricSample("anabranch_subscriber_kept_events", labels, subscriber.events)
    yield MetricSample("anabranch_subscriber_kept_bytes", labels, subscriber.bytes)
    yield MetricSample("anabranch_subscriber_passed_events", labels, subscriber.passed_events)
    yield MetricSample("anabranch_subscriber_passed_bytes", labels, subscriber.passed_bytes)


def _of_watermark(status: WatermarkStatus) -> Iterator[MetricSample]:
    labels = (("stream", status.stream),)
    times = {
        "anabranch_watermark_time_seconds": None if status.watermark is None else status.watermark.time_us,
        "anabranch_watermark_lag_seconds": status.lag_us,
        "anabranch_watermark_still_seconds": status.stalled_us,
    }
    for metric, value_us in times.items():
        if value_us is not None:
            yield MetricSample(metric, labels, value_us / 1e6)
    yield MetricSample("anabranch_watermark_writers", labels, len(status.writers))
    yield MetricSample("anabranch_watermark_idle_writers", labels, len(status.idle))


def _line(sample: MetricSample) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
    return f"{sample.metric}{{{labels}}} {sample.value:.15g}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
