"""The last transaction of a job: what was written becomes what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.catalog.port import Checkpointed, Writing
from anabranch.core.copy import Copied
from anabranch.core.stitch import Joined
from anabranch.errors import Conflict
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream_range import StreamRange
from anabranch.streams.append_stream import append_stream
from anabranch.streams.copy import COPIED
from anabranch.streams.create import delete_stream
from anabranch.streams.find import need_free, need_info
from anabranch.streams.jobs.give_up import give_up_sources
from anabranch.streams.jobs.row import PLAN, JobRow, Part, Plan, plan_name
from anabranch.streams.jobs.stage import close_stage, drop_stage, stage_name
from anabranch.streams.origins import record_origin
from anabranch.streams.scope import need_scope
from anabranch.streams.stitch import stitch_streams


def finish_job(txn: Writing, row: JobRow, plans: Sequence[Plan], stream: StreamId, now: Micros) -> dict[str, Any]:
    """Carry out the job's verb upon its whole stages, which are gone then. Returns the result as JSON. `stream` is the
    id of what a stitch makes. Raises as the verb."""
    if row.verb == "copy":
        return finish_copy(txn, row, plans[0], now)
    if row.gives_up and row.options.get("within"):
        give_up_sources(txn, row, 0, now)
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
    if "deduplicate" in row.options:  # offsets are not what they were
        joined = Joined(joined.stream, tuple((stream, ()) for stream, _ in joined.parts), row.repeats)
    return _of_sources(joined, row.parts).to_json()


def _need_same(txn: Writing, row: JobRow) -> None:
    """What was compared is what is appended to. Raises Conflict where another stream has taken the name."""
    against = row.options.get("against")
    if against is not None and need_info(txn, row.stream).id != int(against["stream"], 16):
        raise Conflict(f"'{row.target}' is another stream than the one whose events job {row.id} was compared with")


def drop_plans(txn: Writing, row: JobRow) -> None:
    """Forget how the work was divided."""
    for number in range(len(row.parts)):
        txn.drop_piece(PLAN, plan_name(row.id, number))


def drop_stages(txn: Writing, row: JobRow) -> None:
    """Give up what was written so far."""
    for part in row.parts:
        drop_stage(txn, part)


def finish_copy(txn: Writing, row: JobRow, plan: Plan, now: Micros) -> dict[str, Any]:
    """Turn the whole stage of a copy into the stream. Returns the result as JSON. Raises StreamExists, ScopeNotFound."""
    need_scope(txn, row.stream.scope)
    need_free(txn, row.stream)
    part = row.parts[0]
    close_stage(txn, part, plan, row.stream, now)
    copied = Copied(part.stage, part.stream, part.start, part.end).to_json()
    txn.put_piece(Checkpointed(COPIED, f"{part.stage:016x}", {**copied, "asked": dict(part.asked)}))
    record_origin(txn, part.stage, "copied", [part.origin], now)
    txn.add_change(part.stage, "copied", {"name": row.target, **copied}, now=now)
    return copied


def _of_sources(joined: Joined, parts: Sequence[Part]) -> Joined:
    """The same with the sources where it names their stages: the offsets are those of the sources."""
    return Joined(
        joined.stream,
        tuple((part.stream, moved) for part, (_, moved) in zip(parts, joined.parts, strict=True)),
        joined.repeats,
    )
