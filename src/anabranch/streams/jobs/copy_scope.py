"""Copying the streams of a scope from another store as one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.core.stretch import plan_stretch
from anabranch.errors import InvalidArgument, StreamExists, StreamNotFound
from anabranch.log.sizes import measure
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.alias import add_alias, aliases
from anabranch.streams.copy import COPIED
from anabranch.streams.ephemeral import ephemeral_streams
from anabranch.streams.find import need_free, need_info
from anabranch.streams.jobs.begin import Drawn, draw, made_copy, stage_part
from anabranch.streams.jobs.cargo import Cargo
from anabranch.streams.jobs.carry import Moving
from anabranch.streams.jobs.finish import finish_copy
from anabranch.streams.jobs.members import MEMBER, Members, Move, member_id
from anabranch.streams.jobs.move import Mover
from anabranch.streams.jobs.row import COPY_SCOPE, JOB, JobRow, Plan, Range, State
from anabranch.streams.jobs.site import Site
from anabranch.streams.scope import create_scope, need_scope, streams_in


@dataclass(frozen=True, slots=True)
class Listed:
    """A stream of a scope: how much it holds, and the aliases that it has in the scope, without that."""

    stream: StreamId
    name: str
    events: int
    bytes: int
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Folder:
    """A scope as it was looked at."""

    name: str
    tags: Mapping[str, str]
    streams: tuple[Listed, ...]


def look_at_scope(source: Site, scope: str, *, internal: bool, ephemeral: bool) -> Folder:
    """The streams of a scope, by name; the store's own and ephemeral ones only if asked. Raises ScopeNotFound."""
    with source.catalog.reading() as reading:
        tags = need_scope(reading, scope).tags
        left_out = set() if ephemeral else {*ephemeral_streams(reading)}
        chosen = [
            info
            for info in streams_in(reading, scope)
            if (internal or not info.name.internal) and info.id not in left_out
        ]
        names: dict[StreamName, list[str]] = {}
        for alias in aliases(reading, scope):
            names.setdefault(alias.leads_to, []).append(alias.name.name)
        found = []
        for first in range(0, len(chosen), limits.SCOPE_PAGE):
            page = [info.id for info in chosen[first : first + limits.SCOPE_PAGE]]
            found += [_listed(reading, view, names) for view in reading.views(page).values()]
    return Folder(scope, tags, tuple(sorted(found, key=lambda each: each.name)))


def _listed(reading: Reading, view: StreamView, names: Mapping[StreamName, Sequence[str]]) -> Listed:
    stretch = plan_stretch(view, HEAD, TAIL)
    between = measure(reading, view, stretch.start, stretch.end)
    info = view.info
    return Listed(info.id, info.name.name, between.events, between.bytes, tuple(names.get(info.name, ())))


def make_scope_job(
    txn: Writing,
    job: str,
    folder: Folder,
    target: str,
    *,
    place: Mapping[str, str],
    options: Mapping[str, Any],
    now: Micros,
) -> JobRow:
    """Write down a job that copies a scope, with a member for each stream; or find the one that was asked for before and
    is not done. The scope is made with the same tags if need be. Raises StreamExists where the name of a copy, or of an
    alias, belongs to something else: nothing is begun then; InvalidName."""
    check_scope(target)
    if options.get("within") and folder.name == target:
        raise InvalidArgument(f"scope '{target}' can't be copied onto itself")
    wanted = (COPY_SCOPE, target, folder.name, dict(options), dict(place))
    for piece in txn.pieces(JOB):
        row = JobRow.from_piece(piece)
        if not row.state.ended and (row.verb, row.target, row.source, dict(row.options), dict(row.place)) == wanted:
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
        txn.put_piece(member.to_piece(MEMBER))
    amount = (sum(each.events for each in folder.streams), sum(each.bytes for each in folder.streams))
    row = JobRow(
        job, COPY_SCOPE, target, (), place, options, now, source=folder.name, members=len(folder.streams), amount=amount
    )
    txn.put_piece(row.to_piece())
    return row


def _refuse_taken(txn: Reading, listed: Listed, target: str) -> None:
    for name in (listed.name, *listed.aliases):
        full = StreamName(target, name)
        taken = txn.stream(full)
        if taken is None:
            continue
        made = txn.piece(COPIED, f"{taken.id:016x}")
        own = name == listed.name
        if made is None or made.value["source"] != f"{listed.stream:016x}" or own != (taken.name == full):
            raise StreamExists(str(full), None if taken.name == full else str(taken.name))


class ScopeCopy(Members):
    """One run of a job that copies a scope."""

    def look(self, member: JobRow) -> Drawn | None:
        """The source as it is now; None where it was deleted since the job was made."""
        try:
            return draw(self._means.source, StreamRange(StreamId(int(member.options["source"], 16))))
        except StreamNotFound:
            return None

    def begin(self, txn: Writing, member: JobRow, seen: Drawn, now: Micros) -> JobRow:
        """A log for each range."""
        if (made := made_copy(txn, member.stream, seen, member.options)) is not None:
            self._add_aliases(txn, member, now)
            return replace(member, state=State.DONE, result=made)
        need_free(txn, member.stream)
        stage = StreamId(self._target.runtime.ids.bits(63))
        return replace(member, parts=(stage_part(txn, member, 0, seen, stage),))

    def mover(self, member: JobRow, plan: Plan) -> Move:
        """Moves messages and files as any copy does."""
        part, means = member.parts[0], self._means
        with self._target.catalog.reading() as snapshot:
            schemas = [snapshot.schema(part.stage, version) for version in range(1, plan.schema_version + 1)]
        cargo = Cargo(means.source, part.stream, schemas)
        return Mover(cargo, self._target, part.stage, means.control, means.hold, means.gauge, self.moved).move

    def bundle(self, member: JobRow, plan: Plan, ranges: Sequence[Range]) -> Moving:
        """These ranges."""
        part, means = member.parts[0], self._means
        run = means.control.job, means.control.owner, means.hold.lease
        return Moving(*run, part.stream, part.stage, plan.schema_version, tuple(ranges))

    def make(self, txn: Writing, member: JobRow, plan: Plan, now: Micros) -> dict[str, Any]:
        """The copy, and its aliases."""
        copied = finish_copy(txn, member, plan, now)
        self._add_aliases(txn, member, now)
        return copied

    def _add_aliases(self, txn: Writing, member: JobRow, now: Micros) -> None:
        for name in member.options["aliases"]:
            add_alias(txn, need_info(txn, member.stream), StreamName(member.stream.scope, name), now)
