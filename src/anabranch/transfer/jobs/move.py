"""Moving the contents of ranges into their logs, step by step: read, make durable, append in one transaction.

A step's extents begin where its logs end, so the progress of a range is the length of its log and nothing else. A
resumed run reads it there, and a step that is taken twice, or by two runs, is appended once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile

from anabranch import limits
from anabranch.blobs.encryption_contexts import inline_context
from anabranch.blobs.keys import commit_key
from anabranch.blobs.layout import frame
from anabranch.catalog.port import Reading
from anabranch.core.checksum import checksum
from anabranch.core.compaction import ARROW, PARQUET
from anabranch.errors import AppendUncertain, BlobMissing, Conflict, CorruptCatalog
from anabranch.log.plan import MissingBlob
from anabranch.model.append import BlobLocation, LogState
from anabranch.model.ids import BlobId, LogId, StreamId
from anabranch.model.stream import Extent
from anabranch.runtime.ids import token
from anabranch.runtime.log_events import JOB_STEP
from anabranch.runtime.retry import UNCERTAIN
from anabranch.runtime.tasks import Lock
from anabranch.transfer.jobs.control import TaskContext
from anabranch.transfer.jobs.deduplicate import KeepMasks, kept_runs, offset_behind
from anabranch.transfer.jobs.follow_views import foreign_write_error
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.memory import HeldMemory
from anabranch.transfer.jobs.parquet_files import DurableBlob, ParquetMover, StoredRun
from anabranch.transfer.jobs.range_reader import LoadedRun, RangeReader, RangeRun
from anabranch.transfer.jobs.record import JobRange, JobRow, put_job

# The logs' lengths show whether a step was taken.
_STEP = replace(UNCERTAIN, errors=(AppendUncertain, Conflict))


class RangeMover:
    """Moves ranges of one source. Thread-safe if each range is moved by one thread."""

    def __init__(
        self,
        range_reader: RangeReader,
        target: JobStore,
        stage: StreamId,
        task: TaskContext,
        *,
        keep_masks: KeepMasks | None = None,
    ) -> None:
        self._range_reader = range_reader
        self._target = target
        self._stage = stage
        self._control, self._hold, self._memory, self._moved = task.control, task.hold, task.memory, task.moved
        self._keep_masks = keep_masks
        self._renewing: Lock = target.runtime.tasks.lock()

    def move(self, ranges: Sequence[JobRange]) -> None:
        """Move what is missing of some ranges, one after another. Each step is durable when it is reported.

        Memory: at most `limits.JOB_BLOB_BYTES` and one message, or one Parquet file. Raises StopRequested, JobRunning,
        Truncated, StreamNotFound, CorruptBlob, BlobExpired, StoreUnavailable.
        """
        missing = MissingBlob()
        retries = _STEP.begin(self._target.runtime)
        while True:
            with self._target.catalog.reading() as snapshot:
                lengths = _ranges_with_lengths(snapshot, ranges)
            try:
                self._move(lengths)
                JOB_STEP(job=self._control.job, ranges=len(ranges))
                return
            except BlobMissing as exc:
                missing.plan_again(exc)
            except _STEP.errors as exc:
                if not retries.again(exc):
                    raise

    def _move(self, lengths: Sequence[tuple[JobRange, int]]) -> None:
        # Many small ranges may each begin with a part of the same file. Move those parts together, so it is read once.
        heads = (
            run
            for range_, length in lengths
            for run in takewhile(lambda run: run.piece.extent.encoding == PARQUET, self._runs(range_, length))
        )
        with self._memory.holding() as held:
            self._files(heads, held)
        with self._target.catalog.reading() as snapshot:
            lengths = _ranges_with_lengths(snapshot, [range_ for range_, _ in lengths])
        runs = (run for range_, length in lengths for run in self._runs(range_, length))
        for tier, group in _by_tier(runs):
            with self._memory.holding() as held:
                if tier == ARROW:
                    self._messages(group, held)
                else:
                    self._files(group, held)

    def _runs(self, range_: JobRange, length: int) -> Iterator[RangeRun]:
        """What is missing of a range whose log has this length."""
        if self._keep_masks is None:
            return self._range_reader.runs(range_, range_.start + length)
        mask = self._keep_masks.mask(range_)
        return kept_runs(self._range_reader.runs(range_, offset_behind(range_, mask, length)), mask, length)

    # tier 1: messages

    def _messages(self, runs: Iterator[RangeRun], held: HeldMemory) -> None:
        loads: list[LoadedRun] = []
        size = 0
        for run in runs:
            load = self._range_reader.load(run)
            held.add(load.message.size)
            if loads and (size + load.message.size > limits.JOB_BLOB_BYTES or len(loads) >= limits.JOB_EXTENTS_MAX):
                self._write(loads)
                held.add(-size)
                loads, size = [], 0
            loads.append(load)
            size += load.message.size
        if loads:
            self._write(loads)

    def _write(self, loads: Sequence[LoadedRun]) -> None:
        messages = [load.message for load in loads]
        if sum(message.size for message in messages) <= self._target.runtime.settings.inline_bytes_max:
            self.append([self._inlined(load) for load in loads], None)
            return
        begun_at, name = self._hold.begun_at, token(self._target.runtime.ids)
        key = commit_key(begun_at, name)
        index = {"commit": name, "begun_at": begun_at, "staged": True}
        sealer = self._target.runtime.sealer
        parts = [{"checksum": load.checksum} for load in loads]
        framed = frame(index, parts, messages, key=key, sealer=sealer)
        self._target.blobs.put(key, framed.chunks)
        places = zip(loads, framed.offsets, framed.lengths, framed.checksums, strict=True)
        stored = [
            StoredRun(
                load.run,
                ARROW,
                BlobLocation(at, length, load.row),
                load.version,
                digest,
                load.run.piece.extent.appended,
            )
            for load, at, length, digest in places
        ]
        self.append(stored, DurableBlob(key, framed.size, begun_at, ARROW))

    def _inlined(self, load: LoadedRun) -> StoredRun:
        sealer = self._target.runtime.sealer
        message, digest = load.message, load.checksum
        if sealer is not None:
            message = sealer.seal(message, inline_context(load.run.range.log))
            digest = checksum(message)
        place = BlobLocation(0, message.size, load.row)
        appended = load.run.piece.extent.appended
        return StoredRun(load.run, ARROW, place, load.version, digest, appended, message.to_pybytes())

    # tier 2: files

    def _files(self, runs: Iterator[RangeRun], held: HeldMemory) -> None:
        files = ParquetMover(self._range_reader, self._target, self._stage, self._hold, held, self.append)
        for run in runs:
            files.add(run)
        files.close()

    # appending

    def append(self, stored: Sequence[StoredRun], blob: DurableBlob | None) -> None:
        """Append runs to their logs, in one transaction. Raises Conflict if a log ends elsewhere than expected."""
        with self._renewing:
            self._hold.renew()
        of_log: dict[LogId, list[StoredRun]] = {}
        for each in stored:
            of_log.setdefault(each.run.range.log, []).append(each)
        with self._target.catalog.writing(self._stage) as txn:
            row = self._control.step(txn)
            logs = txn.logs(sorted(of_log))
            if any(log not in logs or logs[log].sealed for log in of_log):
                raise Conflict(f"the target of job {row.id} was deleted or sealed by another client")
            if row.positions is not None:
                put_job(txn, _row_after_step(row, logs, of_log))
            ident = None if blob is None else txn.insert_blob(*blob)
            for log, runs in of_log.items():
                txn.extend_log(log, _extents(logs[log], runs, ident, None if blob is None else blob.key))
        self._moved(sum(each.run.events for each in stored), sum(each.run.size for each in stored))


def _ranges_with_lengths(snapshot: Reading, ranges: Sequence[JobRange]) -> list[tuple[JobRange, int]]:
    """The ranges, each with the length of its log."""
    logs = snapshot.logs([each.log for each in ranges])
    return [(each, logs[each.log].length) for each in ranges if each.log in logs]


def _row_after_step(row: JobRow, logs: Mapping[LogId, LogState], stored: Mapping[LogId, Sequence[StoredRun]]) -> JobRow:
    """The row of a job that follows its source, after a step. Raises Conflict if a log is not as long as the job left
    it."""
    if row.positions is None:
        raise CorruptCatalog(f"the job that follows into '{row.target}' has no positions", "states")
    positions, followed = dict(row.positions), row.followed
    for log, runs in stored.items():
        if positions.get(str(log)) != logs[log].length:
            raise foreign_write_error(row.target)
        events = sum(each.run.events for each in runs)
        positions[str(log)] += events
        followed += events
    return replace(row, positions=positions, followed=followed, lag=max(row.lag - (followed - row.followed), 0))


def _by_tier(runs: Iterator[RangeRun]) -> Iterator[tuple[str, Iterator[RangeRun]]]:
    return groupby(runs, key=lambda run: run.piece.extent.encoding)


def _extents(log: LogState, stored: Sequence[StoredRun], blob: BlobId | None, key: str | None) -> list[Extent]:
    position, size = log.length, log.size
    found = []
    for each in stored:
        run = each.run
        if run.at != position:
            raise Conflict(f"log {log.id} ends at {position}: another run has moved what follows")
        size += run.size
        found.append(
            Extent(
                log=log.id,
                start=position,
                stop=position + run.events,
                blob=blob,
                key=key,
                encoding=each.encoding,
                location=each.place,
                schema=each.version,
                checksum=each.checksum,
                appended=each.appended,
                events=run.piece.extent.events,
                size_end=size,
                data=each.data,
            )
        )
        position += run.events
    return found
