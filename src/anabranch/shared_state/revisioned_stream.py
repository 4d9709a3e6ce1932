"""Revisioned streams: small internal streams whose appends may be conditional on the revision.

Such a stream has one segment, the sequence of its entries, so a revision is an offset: the number of entries before
it. A conditional append names the revision that it expects; of several appends that expect the same
revision, one succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Rows
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from anabranch.blobs.encryption_contexts import inline_context
from anabranch.catalog.port import Catalog, Reading, StreamTail
from anabranch.core.checksum import checksum
from anabranch.core.display import Displayed
from anabranch.core.raw_event import RawEvent
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    ConditionFailed,
    Conflict,
    Fenced,
    InvalidArgument,
    StreamNotFound,
    StreamSealed,
    TooLarge,
    WriterUnknown,
)
from anabranch.log.commit import Committer, RoutedBatch, RoutedPart, WriterHandle
from anabranch.log.plan import PlannedExtent
from anabranch.log.read import LogReader, Selection
from anabranch.log.read import SegmentRows as ReadRows
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.view import load, refresh
from anabranch.model.append import Appended, BlobLocation, Part, Refusal, Refused, Sequence, Unit
from anabranch.model.columns import RAW_COLUMNS
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, StreamId, WriterId
from anabranch.model.schema import RAW
from anabranch.model.stream import StreamView
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

_WRITER_FORGOTTEN = (Refusal.GAP, Refusal.UNKNOWN_WRITER)  # the log forgot this handle: a new writer id begins at 0
_END = 1 << 62  # after every position of a log
_PAYLOAD = Selection(pa.schema([RAW_COLUMNS.field("payload")]))


# Rows of the change outbox that belong to an update: the kind of change, and its details.
ChangeRows: TypeAlias = Rows[tuple[str, Mapping[str, object]]]


class RevisionedEntry(NamedTuple):
    """One entry, and the revision that it created."""

    revision: int
    value: bytes


class RevisionedStream(Displayed):
    """A handle on one revisioned stream; for one thread at a time. Any number of processes may hold one.

    `truncate` is the store's truncation: it takes the stream's id and a cut.
    """

    def __init__(
        self,
        catalog: Catalog,
        committer: Committer,
        logs: LogReader,
        runtime: Runtime,
        stream: StreamId,
        *,
        truncate: Callable[[StreamId, StreamCut], None],
        committed: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._committer = committer
        self._logs = logs
        self._runtime = runtime
        self._truncate = truncate
        self._committed = committed
        self._restart_numbers()
        with catalog.reading() as reading:
            self._set_view(load(reading, stream))

    def _set_view(self, view: StreamView) -> None:
        """Sets the view of the stream, its segment, the open log of its entries (None if it is sealed), and the
        difference between a revision and the position in that log."""
        if not view.info.schema == RAW or len(view.current) != 1 or view.info.epoch:
            raise InvalidArgument(
                f"'{view.info.name}' is not a revisioned stream: expected a raw stream that was never scaled"
            )
        self._view = view
        self._segment = view.current[0].id
        self._log = view.open_log(self._segment)
        span = view.spans[self._segment][-1]
        self._shift = span.offset - span.start

    def _restart_numbers(self) -> None:
        """Restarts the sequence numbers, under a new writer id."""
        self._writer = WriterHandle(WriterId(token(self._runtime.ids)))
        self._next_number = 0
        self._outcome_unknown = False  # the last append was sent, and its outcome is unknown

    def _prepare_append(self) -> None:
        # A lost or interrupted append may have landed: an append with the same number would count as its duplicate.
        if self._outcome_unknown:
            self._restart_numbers()

    def _facts(self) -> Mapping[str, object]:
        return {"stream": self.name}

    @property
    def name(self) -> str:
        """The stream's full name."""
        return str(self._view.info.name)

    @property
    def id(self) -> StreamId:
        """The stream's id."""
        return self._view.info.id

    def latest(self) -> int:
        """The current revision: the number of entries ever appended. Raises StreamNotFound."""
        with self._catalog.reading() as reading:
            return self._refresh(reading).length(self._segment)

    def oldest(self) -> int:
        """The first revision that can be read from."""
        with self._catalog.reading() as reading:
            return self._refresh(reading).segments[self._segment].head

    def last(self) -> RevisionedEntry | None:
        """The newest entry that still exists, or None if the stream is empty."""
        with self._catalog.reading() as reading:
            return self._newest(reading)[1]

    def last_within(self, reading: Reading) -> RevisionedEntry | None:
        """Like `last`, within the caller's transaction. Raises StreamNotFound."""
        return self._newest(reading)[1]

    def read(self, start: int = 0) -> Iterator[RevisionedEntry]:
        """The entries after revision `start`, in order, up to the revision as of this call. Raises Truncated."""
        stop = self.latest()
        return _entries(SegmentReader(self._logs, self._view, self._segment).rows(start, stop, _PAYLOAD))

    def append(self, value: bytes, *, expected: int | None = None) -> int:
        """Appends an entry, durably, and returns the revision that it created.

        With `expected`, appends only if that is the current revision: else raises ConditionFailed, whose `actual` is
        the current one. Raises TooLarge, StreamSealed, StreamNotFound, AppendUncertain.
        """
        self._check_size(value)
        self._prepare_append()
        for _ in range(2):
            verdict = self._commit(value, expected)
            if isinstance(verdict, Appended):
                self._record_landed()
                return verdict.start + self._shift + 1
            self._outcome_unknown = False
            if verdict.reason not in _WRITER_FORGOTTEN:
                raise self._error(verdict, expected)
            self._restart_numbers()
        raise Conflict(f"the log of '{self.name}' refused an append under a new writer id too; try again")

    def append_numbered(self, value: bytes, *, expected: int | None, writer: str, number: int) -> int:
        """Like `append`, as the `number`th append (from 0) of the named writer. An append that is sent again, even
        through another object, takes place once. Raises WriterUnknown if the log has no record of the writer's appends
        before this number: the log forgot the writer, or the writer skipped a number."""
        self._writer, self._next_number = WriterHandle(WriterId(writer)), number
        self._check_size(value)
        verdict = self._commit(value, expected)
        self._restart_numbers()
        if isinstance(verdict, Appended):
            self._committed()
            return verdict.start + self._shift + 1
        if verdict.reason in _WRITER_FORGOTTEN:
            raise WriterUnknown(writer, number)
        raise self._error(verdict, expected)

    def append_under_lock(
        self, decide: Callable[[RevisionedEntry | None], tuple[bytes, ChangeRows] | None]
    ) -> tuple[int, bool]:
        """Appends the value that `decide` computes from the newest entry, under the catalog's lock: other writers
        wait. `decide` is called within the transaction, so it must be quick and only compute; if it returns None,
        nothing is appended. Returns the revision and True, or False if an earlier attempt, whose outcome was unknown,
        created that revision. Raises what `append` raises.
        """
        self._prepare_append()
        for last in (False, False, True):
            try:
                verdict, revision = self._append_once_under_lock(decide)
            except AppendUncertain:
                # The retry has the same number. If this attempt landed, the retry is a duplicate.
                if last:
                    raise
                continue
            if verdict is None:
                return revision, True
            if isinstance(verdict, Appended):
                self._record_landed()
                created = verdict.start + self._shift + 1
                return created, created == revision + 1
            self._outcome_unknown = False
            if verdict.reason not in _WRITER_FORGOTTEN:
                raise self._error(verdict, revision)
            self._restart_numbers()
        raise Conflict(f"the log of '{self.name}' refused an append under a new writer id too; try again")

    def _record_landed(self) -> None:
        """Records that the append under the current number is durable."""
        self._next_number += 1
        self._outcome_unknown = False
        self._committed()

    def _append_once_under_lock(
        self, decide: Callable[[RevisionedEntry | None], tuple[bytes, ChangeRows] | None]
    ) -> tuple[Appended | Refused | None, int]:
        """The verdict, None if nothing was to be appended, and the revision that it was decided on."""
        now = self._runtime.clock.now()
        writer, log = self._writer.id, self._log
        with self._catalog.writing(self.id if log is None else StreamTail(self.id, log, writer)) as txn:
            revision, entry = self._newest(txn)
            decision = decide(entry)
            if decision is None:
                return None, revision
            value, changes = decision
            sequence = Sequence(writer, self._next_number, self._writer.fences.get(self._open_log(), 0))
            part = self.part(value, revision, sequence=sequence)
            self._outcome_unknown = True
            (verdict,) = txn.append(Unit((part,)), now=now)
            # A duplicate's changes were written when it landed.
            if isinstance(verdict, Appended) and not verdict.duplicate:
                for kind, detail in changes:
                    txn.add_change(self.id, kind, detail, now=now)
        return verdict, revision

    def append_with_changes(self, value: bytes, changes: ChangeRows, *, expected: int) -> int:
        """Like `append`, but also writes rows to the change outbox in the same transaction: they exist if and only if
        the entry does. After AppendUncertain both may exist."""
        part, now = self.part(value, expected), self._runtime.clock.now()
        with self._catalog.writing(self.id) as txn:
            (verdict,) = txn.append(Unit((part,)), now=now)
            if isinstance(verdict, Appended):
                for kind, detail in changes:
                    txn.add_change(self.id, kind, detail, now=now)
        if isinstance(verdict, Refused):
            raise self._error(verdict, expected)
        self._committed()
        return expected + 1

    def part(self, value: bytes, expected: int, *, sequence: Sequence | None = None) -> Part:
        """An entry as a part of the caller's atomic unit, on condition that the revision is `expected`. It is stored
        inline in the catalog. Raises TooLarge."""
        self._check_size(value)
        event = RawEvent(None, self._runtime.clock.now(), value)
        log, message = self._open_log(), event.message
        if self._runtime.sealer is not None:
            message = self._runtime.sealer.seal(pa.py_buffer(message), inline_context(log)).to_pybytes()
        return Part(
            log=log,
            count=1,
            schema=self._view.info.schema_version,
            location=BlobLocation(0, len(message)),
            checksum=checksum(message),
            size=event.nbytes,
            bounds=event.bounds,
            sequence=sequence,
            expected=expected - self._shift,
            data=message,
        )

    def truncate(self, revision: int) -> None:
        """Removes the entries up to `revision`, as far as they still exist. Revisions do not change."""
        with self._catalog.reading() as reading:
            view = self._refresh(reading)
        if revision > view.segments[self._segment].head:
            self._truncate(view.info.id, StreamCut.of(view.info.id, {self._segment: revision}))

    def _newest(self, reading: Reading) -> tuple[int, RevisionedEntry | None]:
        """The revision, and the entry that created it; None if that entry was truncated or never existed."""
        info = reading.stream(self.id)
        if info is None:
            raise StreamNotFound(self.name)
        if info.version != self._view.info.version:
            self._set_view(load(reading, self.id))
        # The last extent of the log ends where the log ends, so no other lookup is needed. It may be missing: a copy
        # begins with an empty log, and truncated entries may have been collected.
        last = None if self._log is None else reading.extent_before(self._log, _END)
        if last is None:
            return self._newest_of_view(reading)
        revision = last.stop + self._shift
        if revision == self._view.segments[self._segment].head:
            return revision, None
        payload = self._logs.raw_payload(last)
        if payload is not None:
            return revision, RevisionedEntry(revision, payload)
        columns = self._logs.columns(reading, self._view.logs[last.log].stream, last.schema)
        newest = PlannedExtent(last, last.stop - 1, last.stop, self._shift, columns)
        (entry,) = _entries(self._logs.rows([newest], _PAYLOAD))
        return revision, entry

    def _newest_of_view(self, reading: Reading) -> tuple[int, RevisionedEntry | None]:
        view = self._refresh(reading)
        revision = view.length(self._segment)
        if revision == view.segments[self._segment].head:
            return revision, None
        page = SegmentReader(self._logs, view, self._segment).plan_in(reading, revision - 1, revision)
        (entry,) = _entries(self._logs.rows(page.extents, _PAYLOAD))
        return revision, entry

    def _commit(self, value: bytes, expected: int | None) -> Appended | Refused:
        part = RoutedPart(
            log=self._open_log(),
            batch=RawEvent(None, self._runtime.clock.now(), value),
            schema=self._view.info.schema,
            schema_version=self._view.info.schema_version,
            writer=self._writer,
            first=self._next_number,
            expected=None if expected is None else expected - self._shift,
        )
        batches = (RoutedBatch((part,)),)
        self._outcome_unknown = True
        (outcome,) = self._committer.commit(self._committer.prepare(batches))
        if isinstance(outcome, AnabranchError):
            raise outcome
        assert isinstance(outcome, tuple), "its parts carry sequences, not a producer's number"
        return outcome[0]

    def _error(self, refused: Refused, expected: int | None) -> AnabranchError:
        match refused.reason:
            case Refusal.CONDITION:
                assert expected is not None
                return ConditionFailed(expected, refused.actual + self._shift)
            case Refusal.FENCED:
                return Fenced(0, refused.actual)
            case _:
                # Sealed or deleted: loading the stream shows which.
                with self._catalog.reading() as reading:
                    self._set_view(load(reading, self.id))
                return StreamSealed(self.name)

    def _check_size(self, value: bytes) -> None:
        if len(value) > self._runtime.settings.event_bytes_max:
            raise TooLarge("an entry of a revisioned stream", len(value), self._runtime.settings.event_bytes_max)

    def _refresh(self, reading: Reading) -> StreamView:
        view = refresh(reading, self._view)
        if view is not self._view:
            self._set_view(view)
        return view

    def _open_log(self) -> LogId:
        if self._log is None:
            raise StreamSealed(self.name)
        return self._log


def _entries(read: Iterable[ReadRows]) -> Iterator[RevisionedEntry]:
    for rows in read:
        for i, value in enumerate(rows.batch.column(0).to_pylist()):
            yield RevisionedEntry(rows.first + i + 1, value)
