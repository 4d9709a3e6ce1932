"""What reader groups have still to read, and how watermarks stand, as text for Prometheus and what else reads its format.

Everything is asked of the store when it is called: nothing is counted in between, so any process may tell, and all tell the
same. Source of the format: Prometheus, text-based exposition format, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from anabranch.core.watermarks import WatermarkStatus
from anabranch.errors import GroupNotFound, StreamNotFound
from anabranch.readers.group.group import ReaderGroup
from anabranch.store import Store

_HELP: Final = {
    "anabranch_group_unread_events": "Events that the reader group has still to read.",
    "anabranch_group_unread_bytes": "Their logical bytes.",
    "anabranch_group_readers": "Readers that are open, or not yet known to be dead.",
    "anabranch_group_unassigned_segments": "Segments to be read that no reader has.",
    "anabranch_watermark_time_seconds": "The watermark: seconds since 1970 up to which the stream is complete.",
    "anabranch_watermark_lag_seconds": "How far it is behind the newest event, in event time.",
    "anabranch_watermark_still_seconds": "For how long it has not advanced.",
    "anabranch_watermark_writers": "Writers that noted a time and have not ended.",
    "anabranch_watermark_idle_writers": "Those of them that are silent, and not waited for.",
}


class Sample(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: tuple[tuple[str, str], ...]
    value: float


def exposition(store: Store) -> str:
    """All metrics of a store. Costs some catalog rows for each segment of each group's streams, whatever they hold."""
    found = list(samples(store))
    lines = []
    for metric, told in _HELP.items():
        lines += [f"# HELP {metric} {told}", f"# TYPE {metric} gauge"]
        lines += [_line(sample) for sample in found if sample.metric == metric]
    return "\n".join([*lines, ""])


def samples(store: Store) -> Iterator[Sample]:
    """The values, group by group and stream by stream. What is deleted meanwhile, or reads a stream that was, is left out."""
    for name in store.reader_groups():
        try:
            yield from list(_of_group(store.reader_group(name)))
        except (GroupNotFound, StreamNotFound):
            continue
    for status in store.watermark_statuses():
        yield from _of_watermark(status)


def _of_group(group: ReaderGroup) -> Iterator[Sample]:
    unread, distribution = group.unread(), group.distribution()
    for name, cut in sorted(group.cut().items()):
        labels = (("group", group.name), ("stream", name))
        behind = [each for segment, each in unread.segments.items() if segment.stream == cut.stream]
        yield Sample("anabranch_group_unread_events", labels, sum(events for events, _ in behind))
        yield Sample("anabranch_group_unread_bytes", labels, sum(size for _, size in behind))
    own = (("group", group.name),)
    yield Sample("anabranch_group_readers", own, len(distribution.readers))
    yield Sample("anabranch_group_unassigned_segments", own, len(distribution.unassigned))


def _of_watermark(status: WatermarkStatus) -> Iterator[Sample]:
    labels = (("stream", status.stream),)
    times = {
        "anabranch_watermark_time_seconds": None if status.mark is None else status.mark.time_us,
        "anabranch_watermark_lag_seconds": status.lag_us,
        "anabranch_watermark_still_seconds": status.still_us,
    }
    for metric, value_us in times.items():
        if value_us is not None:
            yield Sample(metric, labels, value_us / 1e6)
    yield Sample("anabranch_watermark_writers", labels, len(status.writers))
    yield Sample("anabranch_watermark_idle_writers", labels, len(status.idle))


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
    return f"{sample.metric}{{{labels}}} {sample.value:.15g}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
