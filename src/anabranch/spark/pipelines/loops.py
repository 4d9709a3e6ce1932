"""Finds loops: pipelines whose results come back to them through other pipelines, so that events would loop forever.

A statement may feed back only where it says so (FEEDBACK), because then its events count how often they were fed back.
Imports neither Spark nor SQL parsing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import stream_id_text
from anabranch.errors import InvalidSql, NotFound
from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.record import PipelineOutput, rows
from anabranch.store import Store

__all__ = ["Flow", "find_loop", "refuse_loops"]

_HINT: Final = "limit the number of hops in a statement of one of these pipelines: FEEDBACK WITHIN 10 HOPS INTO scope.name WHEN condition"


class Flow(NamedTuple):
    """A pipeline reads the stream `source` and writes the stream `target`, whose name is `name`."""

    source: str
    target: str
    name: str
    pipeline: str


def find_loop(flows: Sequence[Flow], first: Flow) -> tuple[Flow, ...] | None:
    """The shortest loop that begins with `first`: flows by which its events come back to its source. None if there is
    none."""
    onward: dict[str, list[Flow]] = {}
    for flow in flows:
        onward.setdefault(flow.source, []).append(flow)
    ways: list[tuple[Flow, ...]] = [(first,)]
    seen = {first.target}
    while ways:
        following: list[tuple[Flow, ...]] = []
        for way in ways:
            if way[-1].target == first.source:
                return way
            for flow in onward.get(way[-1].target, ()):
                if flow.target not in seen:
                    seen.add(flow.target)
                    following.append((*way, flow))
        ways = following
    return None


def refuse_loops(store: Store, name: str, outputs: Sequence[PipelineOutput]) -> None:
    """Raise InvalidSql if what pipeline `name` writes to these outputs comes back to it through other pipelines that run, or
    that would continue when they are started again."""
    now = store.runtime.clock.now()
    others = [row for row in rows(store.catalog) if row.name != name and (row.prepared or row.alive(now))]
    flows = [flow for row in others for output in row.outputs for flow in _flows(store, row.name, output)]
    own = [(output, flow) for output in outputs for flow in _flows(store, name, output)]
    flows += [flow for _, flow in own]
    for output, flow in own:
        loop = find_loop(flows, flow)
        if loop is not None:
            way = " → ".join(f"{each.name} (by '{each.pipeline}')" for each in loop)
            raise InvalidSql(f"events of {loop[-1].name} would loop forever: {way}; {_HINT}", line=output.line)


def _flows(store: Store, pipeline: str, output: PipelineOutput) -> Iterator[Flow]:
    """The flows of a statement, other than by feedback. Streams by their ids, or, before they exist, by their names."""
    targets = [*output.results, (output.late, output.late_id)]
    for source in output.sources:
        start = output.starts.get(source)
        known = None if start is None else stream_id_text(StreamCut.parse(start).stream)
        for target, ident in targets:
            if target is not None:
                yield Flow(_stream(store, source, known), _stream(store, target, ident), target, pipeline)


def _stream(store: Store, name: str, known: str | None) -> str:
    if known is not None:
        return known
    try:
        found = store.streams.find(StreamName.parse(name))
    except NotFound:  # it was renamed
        return name
    return name if found is None else stream_id_text(found.id)
