"""The lag of pipelines: what each statement has still to read from each of its sources, by segment too.

How far a pipeline has read is in its catalog row, as of its last heartbeat; how much follows is counted now. So any
process can tell the lag, also of a pipeline that does not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.catalog.state.pipeline import PIPELINE, StoredPipeline
from anabranch.errors import InvalidCut, StreamNotFound, Truncated
from anabranch.export.sample import MetricSample
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.segment_range import RangesBetween
from anabranch.store import Store

__all__ = ["HELP", "pipeline_samples"]

HELP: Final = {
    "anabranch_pipeline_lag_events": "Events of the source that the statement of the pipeline has still to read.",
    "anabranch_pipeline_lag_bytes": "Their logical bytes.",
    "anabranch_pipeline_segment_lag_events": "Those of them in one segment; only for segments that have any.",
    "anabranch_pipeline_segment_lag_bytes": "Their logical bytes.",
}


def pipeline_samples(store: Store) -> Iterator[MetricSample]:
    """The lag of each pipeline. Sources that were deleted, and pipelines that never ran, are left out."""
    with store.catalog.reading() as reading:
        pipelines = [stored for _, stored in reading.states(PIPELINE)]
    for pipeline in pipelines:
        yield from _of_pipeline(store, pipeline)


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


def _unread(store: Store, cut: StreamCut) -> RangesBetween:
    """What follows the cut; if events after it were truncated, what is left."""
    try:
        return store.cuts.between(cut.stream, cut)
    except Truncated:
        return store.cuts.between(cut.stream, HEAD)
