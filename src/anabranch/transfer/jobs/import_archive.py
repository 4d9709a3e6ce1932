"""Importing as a job: each data file becomes a blob and the only extent of a log of its own, in any order. Then one
transaction per stream lets the archived segments view these logs.

The length of its log shows whether a file is staged, so an interrupted import continues with the missing files.
Everything is staged in internal streams, which are dropped if the job is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Writing
from anabranch.core.compaction import PARQUET
from anabranch.core.copy import CopyResult
from anabranch.errors import Conflict, CorruptArchive
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream import Span
from anabranch.streams.directory.find import need_view
from anabranch.streams.directory.scopes import create_scope
from anabranch.streams.ephemeral.api import UNNAMED_SCOPE
from anabranch.transfer.archives.adopt import FileLocation, ImportTarget, adopt, earlier_import, extent_of
from anabranch.transfer.archives.data_files import DataFilePart
from anabranch.transfer.archives.format import METADATA, ArchivedFile, ArchivedSegment, ArchivedStream
from anabranch.transfer.archives.import_file import import_data_file
from anabranch.transfer.archives.metadata import listing_flaws, read_metadata, refuse_flaws
from anabranch.transfer.jobs.context import JobContext
from anabranch.transfer.jobs.control import TaskContext
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.members import MembersRun, Move
from anabranch.transfer.jobs.record import JobRange, JobRow, JobSource, JobState, SourcePlan, put_plan
from anabranch.transfer.jobs.remote_tasks import Bundle
from anabranch.transfer.jobs.stage import drop_stage, open_stage, remove_stage, stage_name, whole_span


@dataclass(frozen=True)
class ImportBundle(Bundle):
    """Data files of an archived stream, each with its range."""

    place: str
    stream: StreamId
    stage: StreamId
    files: tuple[tuple[JobRange, ArchivedFile], ...]

    def move(self, source: JobStore, target: JobStore, task: TaskContext) -> None:
        """Raises as `import_files`."""
        with target.open_location(self.place, create=False) as (blobs, _):
            self.import_files(target, blobs, task)

    def import_files(self, target: JobStore, blobs: Blobs, task: TaskContext) -> None:
        """Import the missing files, one after another. Raises CorruptArchive, Conflict, StoreUnavailable and its
        subclasses."""
        with target.catalog.reading() as snapshot:
            logs = snapshot.logs([range_.log for range_, _ in self.files])
            schemas = {file.schema: snapshot.schema(self.stage, file.schema) for _, file in self.files}
        for range_, file in self.files:
            if range_.log in logs and logs[range_.log].length:
                continue
            task.control.check_state()
            task.hold.renew()
            with task.memory.holding() as held:
                held.add(file.size if target.runtime.sealer is None else 2 * file.size)
                part = DataFilePart(self.stream, range_.segment, schemas[file.schema], file.schema)
                location = import_data_file(blobs, self.place, file, part, target.blobs, target.runtime, task.hold)
            self._append(range_, file, location, task)
            task.moved(range_.events, range_.size)

    def _append(self, range_: JobRange, file: ArchivedFile, location: FileLocation, task: TaskContext) -> None:
        def act(txn: Writing, row: JobRow) -> None:
            log = txn.logs([range_.log]).get(range_.log)
            if log is None or log.sealed:
                raise Conflict(f"the target of job {row.id} was deleted or sealed by another client")
            if not log.length:  # else it was done before, or by another run
                blob = txn.insert_blob(location.key, location.size, task.hold.begun_at, PARQUET)
                txn.extend_log(range_.log, [extent_of(file, location, range_.log, 0, blob, file.logical)])

        task.control.act(act, on=self.stage)


class ImportRun(MembersRun):
    """One run of a job that imports."""

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._place = ""
        self._blobs: Blobs
        self._streams: Sequence[ArchivedStream] = ()
        self._options: Mapping[str, Any] = {}

    def run(self, row: JobRow) -> JobRow:
        """Import what is missing and end the job. Raises CorruptArchive if a file is missing, changed or unexpected, or
        if the archive is a different one by now."""
        self._options = row.options
        with ExitStack() as stack:
            self._blobs, self._place = stack.enter_context(self._target.open_location(row.source, create=False))
            found = read_metadata(self._blobs, self._place)
            if found.digest != row.options["archive"]:
                raise CorruptArchive(self._place, METADATA, f"is not the one that job {row.id} began to import")
            refuse_flaws(found, listing_flaws(self._blobs, found.archive))
            self._streams = found.archive.streams
            return super().run(row)

    def read_source(self, member: JobRow) -> ArchivedStream:
        """The stream as described by the archive."""
        return self._streams[int(member.options["number"])]

    def begin(self, txn: Writing, member: JobRow, archived: ArchivedStream, now: Micros) -> JobRow:
        """Create a log for each file."""
        stage = StreamId(self._target.runtime.ids.bits(63))
        import_target = target_of(member, stage, self._options, self._place)
        if (made := earlier_import(txn, import_target)) is not None:
            return replace(member, state=JobState.DONE, result=made.to_json())
        files = [(segment, file) for segment in archived.segments for file in segment.files]
        name = stage_name(
            StreamName(_stage_scope(txn, import_target.name.scope, now), import_target.name.name), member.id, 0
        )
        logs = open_stage(txn, name, stage, archived.schemas, len(files), now)
        ranges = tuple(
            JobRange(segment.segment.id, file.start, file.stop, file.logical, log)
            for (segment, file), log in zip(files, logs, strict=False)
        )
        plan = SourcePlan(
            len(archived.schemas), archived.epoch, archived.next_number, archived.tags, (), ranges, archived.appended_at
        )
        put_plan(txn, member.id, 0, plan)
        size = sum(each.size for each in ranges)
        start, end = str(archived.start), str(archived.end)
        origin = OriginPart(archived.id, str(archived.name), start, end, archived.events, place=self._place)
        part = JobSource(
            archived.id,
            archived.name,
            archived.start,
            archived.end,
            import_target.asked,
            stage,
            archived.events,
            size,
            origin,
        )
        return replace(member, parts=(part,))

    def mover(self, member: JobRow, plan: SourcePlan) -> Move:
        """Imports files in this process."""
        task = self._context.task(self.moved)
        return lambda ranges: self.bundle(member, plan, ranges).import_files(self._target, self._blobs, task)

    def bundle(self, member: JobRow, plan: SourcePlan, ranges: Sequence[JobRange]) -> ImportBundle:
        """A bundle of these files."""
        stream = self.read_source(member)
        files = {(each.segment.id, file.start): file for each in stream.segments for file in each.files}
        chosen = tuple((each, files[each.segment, each.start]) for each in ranges)
        context, part = self._context, member.parts[0]
        return ImportBundle(
            context.control.job, context.control.owner, context.hold.lease, self._place, stream.id, part.stage, chosen
        )

    def make(self, txn: Writing, member: JobRow, plan: SourcePlan, now: Micros) -> dict[str, Any]:
        """Create the archived stream over the logs of its files."""
        stage = member.parts[0].stage
        import_target = target_of(member, stage, self._options, self._place)
        if (made := earlier_import(txn, import_target)) is not None:  # another process created it meanwhile
            drop_stage(txn, member.parts[0])
            return made.to_json()
        return _adopt(txn, self.read_source(member), import_target, plan, now).to_json()


def target_of(member: JobRow, stream: StreamId, options: Mapping[str, Any], place: str) -> ImportTarget:
    """What a member of an import with these options is to become."""
    asked = {"archive": options["archive"]}
    own = member.options
    return ImportTarget(member.stream, stream, asked, place, options["retention"], own["aliases"], own["scope"])


def _stage_scope(txn: Writing, scope: str, now: Micros) -> str:
    """The scope to stage in: the target's scope, or if that is created with its first stream, the scope of nameless
    streams."""
    if txn.scope(scope) is not None:
        return scope
    if txn.scope(UNNAMED_SCOPE) is None:
        create_scope(txn, UNNAMED_SCOPE, {}, now)
    return UNNAMED_SCOPE


def _adopt(
    txn: Writing, stream: ArchivedStream, import_target: ImportTarget, plan: SourcePlan, now: Micros
) -> CopyResult:
    view = need_view(txn, import_target.id)
    remove_stage(txn, view)
    spans: dict[SegmentId, list[Span]] = {}
    for each in plan.ranges:
        spans.setdefault(each.segment, []).append(whole_span(each, view))

    def spans_of(segment: ArchivedSegment) -> Sequence[Span]:
        return spans.get(segment.segment.id, ())

    return adopt(txn, stream, import_target, now, spans_of=spans_of)
