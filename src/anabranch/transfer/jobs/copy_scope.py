"""Copying the streams of a scope from another store as one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.lineage import COPIED
from anabranch.core.stream_slice import plan_slice
from anabranch.errors import InvalidArgument, StreamExists, StreamNotFound
from anabranch.log.sizes import measure
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.copy import existing_copy
from anabranch.streams.directory.find import need_free, need_info
from anabranch.streams.directory.scopes import create_scope, need_scope, streams_in
from anabranch.streams.lifecycle.holders import ephemeral_among
from anabranch.streams.names.alias import add_alias, aliases
from anabranch.transfer.jobs.create import SourceSnapshot, stage_part, take_snapshot
from anabranch.transfer.jobs.finish import finish_copy
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.members import MembersRun, Move
from anabranch.transfer.jobs.move import RangeMover
from anabranch.transfer.jobs.range_reader import RangeReader
from anabranch.transfer.jobs.record import (
    COPY_SCOPE,
    JobRange,
    JobRow,
    JobState,
    SourcePlan,
    member_id,
    open_jobs,
    put_job,
    put_member,
)
from anabranch.transfer.jobs.remote_tasks import MoveBundle


@dataclass(frozen=True, slots=True)
class ListedStream:
    """A stream of a scope: its size, and the aliases it has in the scope, without the scope's name."""

    stream: StreamId
    name: str
    events: int
    bytes: int
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedScope:
    """A scope as of one snapshot."""

    name: str
    tags: Mapping[str, str]
    streams: tuple[ListedStream, ...]


def look_at_scope(source: JobStore, scope: str, *, internal: bool, ephemeral: bool) -> ListedScope:
    """The streams of a scope, by name; internal and ephemeral streams only if asked for. Raises ScopeNotFound."""
    with source.catalog.reading() as reading:
        tags = need_scope(reading, scope).tags
        chosen = [info for info in streams_in(reading, scope) if internal or not info.name.internal]
        left_out = frozenset() if ephemeral else ephemeral_among(reading, [info.id for info in chosen])
        chosen = [info for info in chosen if info.id not in left_out]
        names: dict[StreamName, list[str]] = {}
        for alias in aliases(reading, scope):
            names.setdefault(alias.stream_name, []).append(alias.name.name)
        found = []
        for first in range(0, len(chosen), limits.SCOPE_PAGE):
            page = [info.id for info in chosen[first : first + limits.SCOPE_PAGE]]
            found += [_listed(reading, view, names) for view in reading.views(page).values()]
    return ListedScope(scope, tags, tuple(sorted(found, key=lambda each: each.name)))


def _listed(reading: Reading, view: StreamView, names: Mapping[StreamName, Sequence[str]]) -> ListedStream:
    stream_slice = plan_slice(view, HEAD, TAIL)
    between = measure(reading, view, stream_slice.start, stream_slice.end)
    info = view.info
    return ListedStream(info.id, info.name.name, between.events, between.bytes, tuple(names.get(info.name, ())))


def make_scope_job(
    txn: Writing,
    job: str,
    folder: ListedScope,
    target: str,
    *,
    place: Mapping[str, str],
    options: Mapping[str, Any],
    now: Micros,
) -> JobRow:
    """Create a job that copies a scope, with a member for each stream, or find an unfinished one with the same
    arguments. Creates the scope with the same tags if needed. Raises StreamExists, before anything is begun, if the
    name of a copy or an alias belongs to something else; InvalidName."""
    check_scope(target)
    if options.get("within") and folder.name == target:
        raise InvalidArgument(f"scope '{target}' can't be copied onto itself")
    wanted = (COPY_SCOPE, folder.name, dict(options), dict(place))
    for row in open_jobs(txn, target):
        if (row.verb, row.source, dict(row.options), dict(row.place)) == wanted:
            return row
    for each in folder.streams:
        _refuse_taken(txn, each, target)
    if txn.scope(target) is None:
        create_scope(txn, target, folder.tags, now)
    own = {name: value for name, value in options.items() if name in ("within", "independent")}
    for number, each in enumerate(folder.streams):
        chosen = {**own, "source": f"{each.stream:016x}", "aliases": list(each.aliases)}
        name = str(StreamName(target, each.name))
        member = JobRow(member_id(job, number), "copy", name, (), place, chosen, now, amount=(each.events, each.bytes))
        put_member(txn, member)
    amount = (sum(each.events for each in folder.streams), sum(each.bytes for each in folder.streams))
    row = JobRow(
        job, COPY_SCOPE, target, (), place, options, now, source=folder.name, members=len(folder.streams), amount=amount
    )
    put_job(txn, row)
    return row


def _refuse_taken(txn: Reading, listed: ListedStream, target: str) -> None:
    for name in (listed.name, *listed.aliases):
        full = StreamName(target, name)
        taken = txn.stream(full)
        if taken is None:
            continue
        made = txn.state(COPIED, taken.id)
        own = name == listed.name
        if made is None or made.result.source != listed.stream or own != (taken.name == full):
            raise StreamExists(str(full), None if taken.name == full else str(taken.name))


class ScopeCopyRun(MembersRun):
    """One run of a job that copies a scope."""

    def read_source(self, member: JobRow) -> SourceSnapshot | None:
        """The source as it is now; None if it was deleted since the job was created."""
        try:
            return take_snapshot(self._context.sources[0], StreamRange(StreamId(int(member.options["source"], 16))))
        except StreamNotFound:
            return None

    def begin(self, txn: Writing, member: JobRow, source_snapshot: SourceSnapshot, now: Micros) -> JobRow:
        """Create a log for each range."""
        asked = source_snapshot.copy_arguments(member.options)
        if (made := existing_copy(txn, source_snapshot.stream, member.stream, asked)) is not None:
            self._add_aliases(txn, member, now)
            return replace(member, state=JobState.DONE, result=made.to_json())
        need_free(txn, member.stream)
        stage = StreamId(self._target.runtime.ids.bits(63))
        return replace(member, parts=(stage_part(txn, member, 0, source_snapshot, stage),))

    def mover(self, member: JobRow, plan: SourcePlan) -> Move:
        """Moves messages and files as for any copy."""
        part, source = member.parts[0], self._context.sources[0]
        range_reader = RangeReader.into(self._target, part.stage, plan.schema_version, source, part.stream)
        return RangeMover(range_reader, self._target, part.stage, self._context.task(self.moved)).move

    def bundle(self, member: JobRow, plan: SourcePlan, ranges: Sequence[JobRange]) -> MoveBundle:
        """A bundle of these ranges."""
        part, context = member.parts[0], self._context
        run = context.control.job, context.control.owner, context.hold.lease
        return MoveBundle(*run, part.stream, part.stage, plan.schema_version, tuple(ranges))

    def make(self, txn: Writing, member: JobRow, plan: SourcePlan, now: Micros) -> dict[str, Any]:
        """Create the copy and its aliases."""
        copied = finish_copy(txn, member, plan, now)
        self._add_aliases(txn, member, now)
        return copied

    def _add_aliases(self, txn: Writing, member: JobRow, now: Micros) -> None:
        for name in member.options["aliases"]:
            add_alias(txn, need_info(txn, member.stream), StreamName(member.stream.scope, name), now)
