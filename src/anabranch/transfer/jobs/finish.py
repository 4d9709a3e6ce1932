"""The last transaction of a job: it makes the written logs the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.catalog.port import Writing
from anabranch.core.copy import CopyResult
from anabranch.core.stitch import JoinResult
from anabranch.errors import Conflict
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.append import append_stream
from anabranch.streams.algebra.copy import record_copy
from anabranch.streams.algebra.stitch import stitch_streams
from anabranch.streams.directory.find import need_free, need_info
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.transfer.jobs.delete_sources import delete_sources
from anabranch.transfer.jobs.record import JobRow, JobSource, SourcePlan, drop_plan
from anabranch.transfer.jobs.stage import close_stage, drop_stage, stage_name


def finish_job(txn: Writing, row: JobRow, plans: Sequence[SourcePlan], stream: StreamId, now: Micros) -> dict[str, Any]:
    """Apply the job's verb to its complete stages, which are removed by that. Returns the result as JSON. `stream` is
    the id of the stream that a stitch creates. Raises as the verb."""
    if row.verb == "copy":
        return finish_copy(txn, row, plans[0], now)
    if row.gives_up and row.options.get("within"):
        delete_sources(txn, row, 0, now)
    names = [stage_name(row.stream, row.id, number) for number in range(len(row.parts))]
    for part, plan, name in zip(row.parts, plans, names, strict=True):
        close_stage(txn, part, plan, name, now, sieved="deduplicate" in row.options)
    stages = [StreamRange(part.stage) for part in row.parts]
    if row.verb == "append":
        _need_same(txn, row)
        joined = append_stream(txn, stages[0], row.stream, now, origin=row.parts[0].origin)
        delete_stream(txn, names[0], now)
    else:
        origins = [part.origin for part in row.parts]
        joined = stitch_streams(txn, stages, row.stream, stream, now, keep_sources=False, origins=origins)
    if "deduplicate" in row.options:  # the offsets have changed
        joined = JoinResult(joined.stream, tuple((stream, ()) for stream, _ in joined.parts), row.repeats)
    return _of_sources(joined, row.parts).to_json()


def _need_same(txn: Writing, row: JobRow) -> None:
    """Check that the target is still the stream that was compared. Raises Conflict if another stream has taken the
    name."""
    against = row.options.get("against")
    if against is not None and need_info(txn, row.stream).id != int(against["stream"], 16):
        raise Conflict(f"'{row.target}' is not the stream with which job {row.id} compared its events")


def drop_plans(txn: Writing, row: JobRow) -> None:
    """Delete the plans of the job's sources."""
    for number in range(len(row.parts)):
        drop_plan(txn, row.id, number)


def drop_stages(txn: Writing, row: JobRow) -> None:
    """Discard what was written so far."""
    for part in row.parts:
        drop_stage(txn, part)


def finish_copy(txn: Writing, row: JobRow, plan: SourcePlan, now: Micros) -> dict[str, Any]:
    """Turn the complete stage of a copy into the stream. Returns the result as JSON. Raises StreamExists,
    ScopeNotFound."""
    need_scope(txn, row.stream.scope)
    need_free(txn, row.stream)
    part = row.parts[0]
    close_stage(txn, part, plan, row.stream, now)
    result = CopyResult(part.stage, part.stream, part.start, part.end)
    record_copy(txn, result, row.stream, dict(part.asked), part.origin, now)
    return result.to_json()


def _of_sources(joined: JoinResult, parts: Sequence[JobSource]) -> JoinResult:
    """The same result, naming the sources instead of their stages: the offsets are those of the sources."""
    return JoinResult(
        joined.stream,
        tuple((part.stream, moved) for part, (_, moved) in zip(parts, joined.parts, strict=True)),
        joined.repeats,
    )
