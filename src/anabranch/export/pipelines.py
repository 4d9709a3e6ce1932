"""Metrics of pipelines: what each statement has still to read from each of its sources, by segment too; what its last
run reported; and the states of deployed queries.

How far a pipeline has read is in its catalog row, as of its last heartbeat; how much follows is counted now. So any
process can report the lag, even of a pipeline that does not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from anabranch.catalog.state.pipeline import PIPELINE, StoredPipeline
from anabranch.catalog.state.query import QUERY, QueryRow
from anabranch.errors import InvalidCut, StreamNotFound, Truncated
from anabranch.export.sample import MetricSample
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.segment_range import RangesBetween
from anabranch.store import Store
from anabranch.store.engine_api import event_times_at

_OF_STATEMENT: Final = {
    "anabranch_pipeline_lag_seconds": (
        "lag_s",
        1,
        "The age of the oldest unread event; at most the time since the run's start.",
    ),
    "anabranch_pipeline_watermark_seconds": (
        "watermark_us",
        1e6,
        "The watermark of the statement: seconds since 1970.",
    ),
    "anabranch_pipeline_read_events_per_second": ("rows_per_s", 1, "The rate of reading over some seconds."),
    "anabranch_pipeline_written_events": ("written", 1, "Events in the statement's result stream."),
    "anabranch_pipeline_late_events": ("run_late", 1, "Events that came too late for their windows, in the last run."),
    "anabranch_pipeline_shed_events": ("run_shed", 1, "Events that were left out to shed load, in the last run."),
    "anabranch_pipeline_batch_seconds": ("batch_ms", 1e3, "How long the statement's last micro-batch took."),
}
"""The names of these values in the progress of a statement, and what they are divided by."""
_OF_OPERATOR: Final = {
    "anabranch_pipeline_state_rows": ("rows", "Rows in the state of a stateful operator."),
    "anabranch_pipeline_state_bytes": ("bytes", "The memory that the state of a stateful operator takes."),
    "anabranch_pipeline_dropped_rows": ("dropped", "Rows that a stateful operator dropped as late, in the last run."),
}
_STATES: Final = ("waiting", "starting", "running", "stopping", "stopped", "failed")

HELP: Final = {
    "anabranch_pipeline_lag_events": "Events of the source that the statement has not read yet.",
    "anabranch_pipeline_lag_bytes": "Logical bytes of the source that the statement has not read yet.",
    "anabranch_pipeline_segment_lag_events": "Unread events in one segment; only for segments that have any.",
    "anabranch_pipeline_segment_event_time_seconds": "Up to which event time a segment is read: seconds since 1970.",
    "anabranch_pipeline_segment_lag_bytes": "Unread logical bytes in one segment; only for segments that have any.",
    **{metric: text for metric, (_, _, text) in _OF_STATEMENT.items()},
    **{metric: text for metric, (_, text) in _OF_OPERATOR.items()},
    "anabranch_query_state": "1 for the state of the deployed query, 0 for the others.",
    "anabranch_query_restarts": "Runs of the deployed query that failed in a row.",
}


def pipeline_samples(store: Store) -> Iterator[MetricSample]:
    """The values of each pipeline and of each deployed query. Sources that were deleted, and pipelines that never ran, are
    left out."""
    with store.catalog.reading() as reading:
        pipelines = [stored for _, stored in reading.states(PIPELINE)]
        queries = [row for _, row in reading.states(QUERY)]
    for pipeline in pipelines:
        yield from _of_pipeline(store, pipeline)
        for progress in pipeline.progress:
            yield from _of_statement(pipeline.name, progress)
    for row in queries:
        yield from _of_query(row, store.runtime.clock.now())


def _of_pipeline(store: Store, pipeline: StoredPipeline) -> Iterator[MetricSample]:
    for progress in pipeline.progress:
        for text in progress.get("reached", {}).values():
            try:
                cut = StreamCut.parse(text)
                source = str(store.streams.get(cut.stream).name)
                unread = _unread(store, cut)
            except (InvalidCut, StreamNotFound):
                continue
            labels = (("pipeline", pipeline.name), ("result", str(progress.get("target"))), ("stream", source))
            yield MetricSample("anabranch_pipeline_lag_events", labels, unread.events)
            yield MetricSample("anabranch_pipeline_lag_bytes", labels, unread.bytes)
            for part in unread.ranges:
                of_segment = (*labels, ("segment", str(part.segment)))
                yield MetricSample("anabranch_pipeline_segment_lag_events", of_segment, part.events)
                yield MetricSample("anabranch_pipeline_segment_lag_bytes", of_segment, part.bytes)
            for segment, time in event_times_at(store.internals.logs, cut).items():
                of_segment = (*labels, ("segment", str(segment)))
                yield MetricSample("anabranch_pipeline_segment_event_time_seconds", of_segment, time / 1e6)


def _of_statement(pipeline: str, progress: Mapping[str, Any]) -> Iterator[MetricSample]:
    """What the last run reported. Labels have one value for each operator of a statement's plan, so they are few."""
    labels = (("pipeline", pipeline), ("result", str(progress.get("target"))))
    for metric, (name, unit, _) in _OF_STATEMENT.items():
        if (value := progress.get(name)) is not None:
            yield MetricSample(metric, labels, value / unit)
    for number, operator in enumerate(progress.get("operators", ()), 1):
        of_operator = (*labels, ("operator", f"{number} {operator['operator']}"))
        for metric, (name, _) in _OF_OPERATOR.items():
            yield MetricSample(metric, of_operator, operator[name])


def _of_query(row: QueryRow, now: int) -> Iterator[MetricSample]:
    held = row.lease is not None and row.lease.until > now
    current = row.state if held or row.state not in ("starting", "running", "stopping") else "waiting"
    for state in _STATES:
        labels = (("query", row.name), ("state", state))
        yield MetricSample("anabranch_query_state", labels, 1 if state == current else 0)
    yield MetricSample("anabranch_query_restarts", (("query", row.name),), row.restarts)


def _unread(store: Store, cut: StreamCut) -> RangesBetween:
    """What follows the cut; if events after it were truncated, what is left."""
    try:
        return store.cuts.between(cut.stream, cut)
    except Truncated:
        return store.cuts.between(cut.stream, HEAD)
