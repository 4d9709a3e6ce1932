"""Moving what ranges hold into their logs, a step at a time: read, make durable, append in one transaction.

A step's extents begin where its logs end, so how far a range has come is the length of its log, nothing else: whoever
goes on reads it there, and a step that was taken twice, or by two, is appended once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile

from anabranch import limits
from anabranch.blobs.keys import commit_key
from anabranch.blobs.layout import frame
from anabranch.blobs.sealed import inlined_place
from anabranch.catalog.port import Reading
from anabranch.core.checksum import checksum
from anabranch.core.compaction import ARROW, PARQUET
from anabranch.errors import AppendUncertain, BlobMissing, Conflict
from anabranch.log.lease import Hold
from anabranch.model.append import LogState, Place
from anabranch.model.ids import BlobId, LogId, StreamId
from anabranch.model.stream import Extent
from anabranch.runtime.ids import token
from anabranch.runtime.tasks import Lock
from anabranch.streams.jobs.cargo import Cargo, Load, Run
from anabranch.streams.jobs.control import Control
from anabranch.streams.jobs.files import Files
from anabranch.streams.jobs.gauge import Gauge, Held
from anabranch.streams.jobs.row import JobRow, Range
from anabranch.streams.jobs.sieve import Masks, offset_behind, sifted
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.stored import Lasting, Stored

_TRIES = 5
_PAUSE_S = 0.05

Moved = Callable[[int, int], None]  # events and logical bytes that were appended


class Mover:
    """Moves ranges of one source. Thread-safe, if several move different ranges."""

    def __init__(
        self,
        cargo: Cargo,
        target: Site,
        stage: StreamId,
        control: Control,
        hold: Hold,
        gauge: Gauge,
        moved: Moved,
        *,
        sieve: Masks | None = None,
    ) -> None:
        self._cargo = cargo
        self._target = target
        self._stage = stage
        self._control = control
        self._hold = hold
        self._gauge = gauge
        self._moved = moved
        self._sieve = sieve
        self._renewing: Lock = target.runtime.tasks.lock()

    def move(self, ranges: Sequence[Range]) -> None:
        """Move what is missing of some ranges, one after another. Each step is durable when it is told of.

        Holds at most `limits.JOB_BLOB_BYTES` and one message, or one Parquet file. Raises Stopped, JobRunning,
        Truncated, StreamNotFound, CorruptBlob, BlobExpired, StoreUnavailable.
        """
        missing: str | None = None
        tries = 0
        while True:
            with self._target.catalog.reading() as snapshot:
                lengths = _lengths(snapshot, ranges)
            try:
                self._move(lengths)
                return
            except BlobMissing as exc:
                # The plan may be older than a compaction whose old blobs were collected since: plan again, once.
                if exc.key == missing:
                    raise
                missing = exc.key
            except (AppendUncertain, Conflict):
                # Whether the step was taken, the logs' lengths tell.
                tries += 1
                if tries == _TRIES:
                    raise
                self._target.runtime.tasks.sleep(_PAUSE_S * 2**tries)

    def _move(self, lengths: Sequence[tuple[Range, int]]) -> None:
        # Files that many small ranges share begin each of them: so they are moved together, and read once.
        heads = (
            run
            for range_, length in lengths
            for run in takewhile(lambda run: run.piece.extent.encoding == PARQUET, self._runs(range_, length))
        )
        with self._gauge.holding() as held:
            self._files(heads, held)
        with self._target.catalog.reading() as snapshot:
            lengths = _lengths(snapshot, [range_ for range_, _ in lengths])
        runs = (run for range_, length in lengths for run in self._runs(range_, length))
        for tier, group in _by_tier(runs):
            with self._gauge.holding() as held:
                if tier == ARROW:
                    self._messages(group, held)
                else:
                    self._files(group, held)

    def _runs(self, range_: Range, length: int) -> Iterator[Run]:
        """What is missing of a range whose log is so long."""
        if self._sieve is None:
            return self._cargo.runs(range_, range_.start + length)
        mask = self._sieve.mask(range_)
        return sifted(self._cargo.runs(range_, offset_behind(range_, mask, length)), mask, length)

    # tier 1: messages

    def _messages(self, runs: Iterator[Run], held: Held) -> None:
        loads: list[Load] = []
        size = 0
        for run in runs:
            load = self._cargo.load(run)
            held.add(load.message.size)
            if loads and (size + load.message.size > limits.JOB_BLOB_BYTES or len(loads) >= limits.JOB_EXTENTS_MAX):
                self._write(loads)
                held.add(-size)
                loads, size = [], 0
            loads.append(load)
            size += load.message.size
        if loads:
            self._write(loads)

    def _write(self, loads: Sequence[Load]) -> None:
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
            Stored(load.run, ARROW, Place(at, length, load.row), load.version, digest, load.run.piece.extent.appended)
            for load, at, length, digest in places
        ]
        self.append(stored, Lasting(key, framed.size, begun_at, ARROW))

    def _inlined(self, load: Load) -> Stored:
        sealer = self._target.runtime.sealer
        message, digest = load.message, load.checksum
        if sealer is not None:
            message = sealer.seal(message, inlined_place(load.run.range.log))
            digest = checksum(message)
        place = Place(0, message.size, load.row)
        appended = load.run.piece.extent.appended
        return Stored(load.run, ARROW, place, load.version, digest, appended, message.to_pybytes())

    # tier 2: files

    def _files(self, runs: Iterator[Run], held: Held) -> None:
        files = Files(self._cargo, self._target, self._stage, self._hold, held, self.append)
        for run in runs:
            files.add(run)
        files.close()

    # appending

    def append(self, stored: Sequence[Stored], blob: Lasting | None) -> None:
        """Append runs to their logs, in one transaction. Raises Conflict where a log ends elsewhere than expected."""
        with self._renewing:
            self._hold.renew()
        of_log: dict[LogId, list[Stored]] = {}
        for each in stored:
            of_log.setdefault(each.run.range.log, []).append(each)
        with self._target.catalog.writing(self._stage) as txn:
            row = self._control.step(txn)
            logs = txn.logs(sorted(of_log))
            if any(log not in logs or logs[log].sealed for log in of_log):
                raise Conflict(f"what job {row.id} writes to was deleted or sealed by somebody else")
            if row.positions is not None:
                txn.put_piece(_advanced(row, logs, of_log).to_piece())
            ident = None if blob is None else txn.insert_blob(*blob)
            for log, runs in of_log.items():
                txn.extend_log(log, _extents(logs[log], runs, ident, None if blob is None else blob.key))
        self._moved(sum(each.run.events for each in stored), sum(each.run.size for each in stored))


def _lengths(snapshot: Reading, ranges: Sequence[Range]) -> list[tuple[Range, int]]:
    """The ranges, each with the length of its log."""
    logs = snapshot.logs([each.log for each in ranges])
    return [(each, logs[each.log].length) for each in ranges if each.log in logs]


def _advanced(row: JobRow, logs: Mapping[LogId, LogState], stored: Mapping[LogId, Sequence[Stored]]) -> JobRow:
    """The row of a job that follows its source, behind a step. Raises Conflict where a log is not as long as the job has
    left it."""
    assert row.positions is not None
    positions, followed = dict(row.positions), row.followed
    for log, runs in stored.items():
        if positions.get(str(log)) != logs[log].length:
            raise Conflict(f"'{row.target}' was written to by somebody else: a copy that follows its source can't be")
        events = sum(each.run.events for each in runs)
        positions[str(log)] += events
        followed += events
    return replace(row, positions=positions, followed=followed, lag=max(row.lag - (followed - row.followed), 0))


def _by_tier(runs: Iterator[Run]) -> Iterator[tuple[str, Iterator[Run]]]:
    return groupby(runs, key=lambda run: run.piece.extent.encoding)


def _extents(log: LogState, stored: Sequence[Stored], blob: BlobId | None, key: str | None) -> list[Extent]:
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
                place=each.place,
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
