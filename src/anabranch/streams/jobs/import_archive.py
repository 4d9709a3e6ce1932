"""Importing as a job: each data file becomes a blob and the only extent of a log of its own, in any order; then one
transaction a stream lets the archived segments view these logs.

What was staged is known by the length of its log, so an import that was interrupted goes on with the files that are
missing. All of it lies in internal streams, which are dropped where the job is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Writing
from anabranch.core.archive import METADATA, ArchivedFile, ArchivedSegment, ArchivedStream
from anabranch.core.compaction import PARQUET
from anabranch.core.copy import Copied
from anabranch.errors import Conflict, CorruptArchive
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream import Span
from anabranch.streams.archive.adopt import Lying, Wish, adopt, extent_of, made_before
from anabranch.streams.archive.bring import bring_file
from anabranch.streams.archive.files import Part as Held
from anabranch.streams.archive.metadata import listing_flaws, read_metadata, refuse_flaws
from anabranch.streams.find import need_view
from anabranch.streams.jobs.carry import Bundle, Porter
from anabranch.streams.jobs.means import Means, insist
from anabranch.streams.jobs.members import Members, Move
from anabranch.streams.jobs.row import JobRow, Part, Plan, Range, State
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.stage import drop_stage, open_stage, stage_name
from anabranch.streams.scope import create_scope
from anabranch.streams.temporary import NAMELESS


@dataclass(frozen=True)
class Bringing(Bundle):
    """Data files of an archived stream, each with the range that it is."""

    place: str
    stream: StreamId
    stage: StreamId
    files: tuple[tuple[Range, ArchivedFile], ...]

    def move(self, source: Site, target: Site, porter: Porter) -> None:
        """Raises as `bring`."""
        with target.open_place(self.place, create=False) as (blobs, _):
            self.bring(target, blobs, porter)

    def bring(self, target: Site, blobs: Blobs, porter: Porter) -> None:
        """Bring what is missing of them, a file after another. Raises CorruptArchive, Conflict, StoreUnavailable and its
        kind."""
        with target.catalog.reading() as snapshot:
            logs = snapshot.logs([range_.log for range_, _ in self.files])
            schemas = {file.schema: snapshot.schema(self.stage, file.schema) for _, file in self.files}
        for range_, file in self.files:
            if range_.log in logs and logs[range_.log].length:
                continue
            porter.control.look()
            porter.hold.renew()
            with porter.gauge.holding() as held:
                held.add(file.size if target.runtime.sealer is None else 2 * file.size)
                part = Held(self.stream, range_.segment, schemas[file.schema], file.schema)
                lies = bring_file(blobs, self.place, file, part, target.blobs, target.runtime, porter.hold)
            self._append(target, range_, file, lies, porter)
            porter.moved(range_.events, range_.size)

    def _append(self, target: Site, range_: Range, file: ArchivedFile, lies: Lying, porter: Porter) -> None:
        def act() -> None:
            with target.catalog.writing(self.stage) as txn:
                row = porter.control.step(txn)
                log = txn.logs([range_.log]).get(range_.log)
                if log is None or log.sealed:
                    raise Conflict(f"what job {row.id} writes to was deleted or sealed by somebody else")
                if not log.length:  # else this was done before, or by another run
                    blob = txn.insert_blob(lies.key, lies.size, porter.hold.begun_at, PARQUET)
                    txn.extend_log(range_.log, [extent_of(file, lies, range_.log, 0, blob, file.logical)])

        insist(target.runtime.tasks, act)


class Importing(Members):
    """One run of a job that imports."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._place = ""
        self._blobs: Blobs
        self._streams: Sequence[ArchivedStream] = ()
        self._options: Mapping[str, Any] = {}

    def run(self, row: JobRow) -> JobRow:
        """Raises CorruptArchive where a file is missing, changed or strange, or the archive is another one by now."""
        self._options = row.options
        with ExitStack() as stack:
            self._blobs, self._place = stack.enter_context(self._target.open_place(row.source, create=False))
            found = read_metadata(self._blobs, self._place)
            if found.digest != row.options["archive"]:
                raise CorruptArchive(self._place, METADATA, f"is not the one that job {row.id} began to import")
            refuse_flaws(found, listing_flaws(self._blobs, found.archive))
            self._streams = found.archive.streams
            return super().run(row)

    def look(self, member: JobRow) -> ArchivedStream:
        """What the archive says of the stream."""
        return self._streams[int(member.options["number"])]

    def begin(self, txn: Writing, member: JobRow, seen: ArchivedStream, now: Micros) -> JobRow:
        """A log for each file."""
        stage = StreamId(self._target.runtime.ids.bits(63))
        wish = wish_of(member, stage, self._options, self._place)
        if (made := made_before(txn, wish)) is not None:
            return replace(member, state=State.DONE, result=made.to_json())
        files = [(segment, file) for segment in seen.segments for file in segment.files]
        name = stage_name(StreamName(_stage_scope(txn, wish.name.scope, now), wish.name.name), member.id, 0)
        logs = open_stage(txn, name, stage, seen.schemas, len(files), now)
        ranges = tuple(
            Range(segment.segment.id, file.start, file.stop, file.logical, log)
            for (segment, file), log in zip(files, logs, strict=False)
        )
        plan = Plan(len(seen.schemas), seen.epoch, seen.next_number, seen.tags, (), ranges, seen.appended_at)
        txn.put_piece(plan.to_piece(member.id, 0))
        size = sum(each.size for each in ranges)
        start, end = str(seen.start), str(seen.end)
        origin = OriginPart(seen.id, str(seen.name), start, end, seen.events, place=self._place)
        part = Part(seen.id, seen.name, seen.start, seen.end, wish.asked, stage, seen.events, size, origin)
        return replace(member, parts=(part,))

    def mover(self, member: JobRow, plan: Plan) -> Move:
        """Brings files here."""
        porter = Porter(self._means.control, self._means.hold, self._means.gauge, self.moved)
        return lambda ranges: self.bundle(member, plan, ranges).bring(self._target, self._blobs, porter)

    def bundle(self, member: JobRow, plan: Plan, ranges: Sequence[Range]) -> Bringing:
        """These files."""
        stream = self.look(member)
        files = {(each.segment.id, file.start): file for each in stream.segments for file in each.files}
        chosen = tuple((each, files[each.segment, each.start]) for each in ranges)
        means, part = self._means, member.parts[0]
        return Bringing(
            means.control.job, means.control.owner, means.hold.lease, self._place, stream.id, part.stage, chosen
        )

    def make(self, txn: Writing, member: JobRow, plan: Plan, now: Micros) -> dict[str, Any]:
        """The archived stream over the logs of its files."""
        stage = member.parts[0].stage
        wish = wish_of(member, stage, self._options, self._place)
        if (made := made_before(txn, wish)) is not None:  # by somebody else meanwhile
            drop_stage(txn, member.parts[0])
            return made.to_json()
        return _adopt(txn, self.look(member), wish, plan, now).to_json()


def wish_of(member: JobRow, stream: StreamId, options: Mapping[str, Any], place: str) -> Wish:
    """What a member of an import with these options is to become."""
    asked = {"archive": options["archive"]}
    own = member.options
    return Wish(member.stream, stream, asked, place, options["retention"], own["aliases"], own["scope"])


def _stage_scope(txn: Writing, scope: str, now: Micros) -> str:
    """Where to stage for a scope: there, or where it is made with its first stream, among what has no name."""
    if txn.scope(scope) is not None:
        return scope
    if txn.scope(NAMELESS) is None:
        create_scope(txn, NAMELESS, {}, now)
    return NAMELESS


def _adopt(txn: Writing, stream: ArchivedStream, wish: Wish, plan: Plan, now: Micros) -> Copied:
    view = need_view(txn, wish.id)
    for log in view.logs.values():
        txn.update_log(replace(log, sealed=True))
    txn.drop_stream(wish.id)
    spans: dict[SegmentId, list[Span]] = {}
    for each in plan.ranges:
        assert view.logs[each.log].length == each.events, f"log {each.log} does not hold {each.events} events"
        spans.setdefault(each.segment, []).append(Span(each.segment, each.start, each.log, 0, each.events))

    def spans_of(segment: ArchivedSegment) -> Sequence[Span]:
        return spans.get(segment.segment.id, ())

    return adopt(txn, stream, wish, now, spans_of=spans_of)
