"""Making a job: its sources are looked at once, and all it needs to be carried out, or gone on with, is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.core.cuts import head_cut, tail_cut
from anabranch.core.stitch import joined_schema
from anabranch.core.stretch import Stretch, plan_stretch
from anabranch.errors import InvalidArgument, StreamExists
from anabranch.log.slices import slices
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.schema import StreamSchema
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.copy import COPIED, copy_stream
from anabranch.streams.find import cuts_of, named, need_free, need_view
from anabranch.streams.jobs.follow import open_positions
from anabranch.streams.jobs.row import JOB, JobRow, Part, Plan, Range, State
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.stage import open_stage, stage_name
from anabranch.streams.origins import part_of
from anabranch.streams.scope import need_scope


@dataclass(frozen=True, slots=True)
class Drawn:
    """A source as it was looked at: what lies between its cuts, in slices, every schema it has had, and where it came from.
    `store` is the number of its store."""

    asked: StreamRange
    stretch: Stretch
    schemas: tuple[StreamSchema, ...]
    origin: OriginPart
    slices: tuple[SegmentRange, ...]
    store: int = 0


def draw(source: Site, part: StreamRange, store: int = 0) -> Drawn:
    """Look at a source. Raises StreamNotFound, InvalidCut, Truncated."""
    with source.catalog.reading() as reading:
        view = need_view(reading, named(part))
        stretch = plan_stretch(view, *cuts_of(part))
        schemas = [reading.schema(view.info.id, version) for version in range(1, view.info.schema_version + 1)]
        found = slices(reading, stretch, bytes_max=limits.JOB_RANGE_BYTES, count_max=limits.JOB_RANGES_MAX)
        return Drawn(part, stretch, tuple(schemas), part_of(reading, stretch), tuple(found), store)


def make_job(
    txn: Writing,
    job: str,
    verb: str,
    target: StreamName,
    sources: Sequence[Drawn],
    stages: Sequence[StreamId],
    *,
    places: Sequence[Mapping[str, str]],
    options: Mapping[str, Any],
    now: Micros,
) -> JobRow:
    """Write down a job that is not begun yet, with a stage for each of its sources, which live in these places; or find
    the copy that was asked for before with the same arguments and is not done. Raises ScopeNotFound; StreamExists
    where a copy's target is something else; SchemaMismatch. A target that is that copy already makes a job that is done."""
    need_scope(txn, target.scope)
    if verb == "copy" and (same := _under_way(txn, target, sources[0], options)) is not None:
        return same
    row = JobRow(job, verb, str(target), (), places[0], options, now, more_places=tuple(places[1:]))
    if options.get("shared"):
        return _viewing(txn, row, sources[0], stages[0])
    if verb == "copy" and (made := made_copy(txn, target, sources[0], options)) is not None:
        if "follow" in options:
            raise StreamExists(str(target))
        row = replace(row, state=State.DONE, result=made)
    else:
        infos = [drawn.stretch.view.info for drawn in sources]
        if verb == "append":
            onto = need_view(txn, target)
            infos.insert(0, onto.info)
            if "deduplicate" in options:
                row = replace(row, options={**options, "against": _against(onto)})
        elif not _given_up(txn, target, sources, options):
            need_free(txn, target)
        joined_schema(infos)  # refuses what can't be joined before it is moved
        row = replace(
            row, parts=tuple(stage_part(txn, row, n, *each) for n, each in enumerate(zip(sources, stages, strict=True)))
        )
    txn.put_piece(row.to_piece())
    return row


def _under_way(txn: Writing, target: StreamName, drawn: Drawn, options: Mapping[str, Any]) -> JobRow | None:
    source, asked = drawn.stretch.view.info.id, asked_of(drawn, options)
    for piece in txn.pieces(JOB):
        row = JobRow.from_piece(piece)
        if row.state.ended or (row.verb, row.target, dict(row.options)) != ("copy", str(target), dict(options)):
            continue
        if (row.parts[0].stream, dict(row.parts[0].asked)) == (source, asked):
            return row
    return None


def _viewing(txn: Writing, row: JobRow, drawn: Drawn, stream: StreamId) -> JobRow:
    """A job that follows a stream of its own store begins with a copy that shares the bytes there are."""
    need_free(txn, row.stream)  # whether a copy that is there still is what the source was, nobody knows
    copied = copy_stream(txn, drawn.asked, row.stream, stream, row.created_at)
    part = Part(
        copied.source,
        drawn.stretch.view.info.name,
        copied.start,
        copied.end,
        asked_of(drawn, {}),
        copied.copy,
        0,
        0,
        drawn.origin,
    )
    positions = open_positions(need_view(txn, copied.copy))
    row = replace(row, parts=(part,), result=copied.to_json(), positions=positions)
    txn.put_piece(row.to_piece())
    return row


def asked_of(drawn: Drawn, options: Mapping[str, Any]) -> dict[str, object]:
    """How a copy was asked for, so that asking again is known."""
    asked: dict[str, object] = {"start": _said(drawn.asked.start), "end": _said(drawn.asked.end)}
    return {**asked, "independent": True} if options.get("independent") else asked


def made_copy(txn: Writing, target: StreamName, drawn: Drawn, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The copy that is there, if it was asked for with the same arguments. Raises StreamExists for another stream."""
    present = txn.stream(target)
    if present is None or present.name != target:
        return None
    made = txn.piece(COPIED, f"{present.id:016x}")
    source = f"{drawn.stretch.view.info.id:016x}"
    if made is None or made.value["source"] != source or made.value["asked"] != asked_of(drawn, options):
        raise StreamExists(str(target))
    return dict(made.value)


def stage_part(txn: Writing, row: JobRow, number: int, drawn: Drawn, stage: StreamId) -> Part:
    """Write down the plan of a job's `number`th source, and open its stage."""
    stretch = drawn.stretch
    info = stretch.view.info
    name = stage_name(row.stream, row.id, number)
    logs = open_stage(txn, name, stage, drawn.schemas, len(drawn.slices), row.created_at)
    plan = Plan(
        info.schema_version,
        info.epoch,
        info.next_number,
        info.tags,
        tuple((piece.segment, piece.stop) for piece in stretch.pieces),
        tuple(Range(*each, log) for each, log in zip(drawn.slices, logs, strict=False)),
        stretch.appended_at,
    )
    txn.put_piece(plan.to_piece(row.id, number))
    return Part(
        info.id,
        info.name,
        stretch.start,
        stretch.end,
        asked_of(drawn, row.options),
        stage,
        stretch.events,
        sum(each.bytes for each in drawn.slices),
        replace(drawn.origin, place=row.places[drawn.store].get("url")),
        drawn.store,
    )


def _given_up(txn: Writing, target: StreamName, sources: Sequence[Drawn], options: Mapping[str, Any]) -> bool:
    """True if the target's name is that of a source of this store, which goes when the target comes."""
    present = txn.stream(target) if options.get("within") and options.get("drop") else None
    return present is not None and present.id in {drawn.stretch.view.info.id for drawn in sources}


def _against(onto: StreamView) -> dict[str, str]:
    """What a stream holds now, whose events others may repeat."""
    return {"stream": f"{onto.info.id:016x}", "from": str(head_cut(onto)), "to": str(tail_cut(onto))}


def _said(cut: StreamCut | Edge | str) -> str:
    return cut.value if isinstance(cut, Edge) else str(cut)


def whole(part: StreamRange) -> StreamRange:
    """The range, if it is a whole stream. Raises InvalidArgument: what follows a source has no end."""
    if not isinstance(part.end, Edge) or part.end is not Edge.TAIL:
        raise InvalidArgument("a copy that follows its source has no end: leave it out, or do not follow")
    return part
