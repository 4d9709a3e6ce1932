"""Revisioned streams: a small stream of the store's own whose appends may be conditional on its revision.

Its only segment is the sequence of its entries, so a revision is an offset: the number of entries before it. Whoever
appends says at which revision it believes the stream to be; of several who say the same, one is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Rows
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from anabranch.blobs.sealed import inlined_place
from anabranch.catalog.port import Catalog, Reading, StreamEnd
from anabranch.core.checksum import checksum
from anabranch.core.cuts import below_head, truncated
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
)
from anabranch.log.commit import Committer, Draft, Outcome, Work, WriterName
from anabranch.log.plan import Piece, Plan
from anabranch.log.read import LogReader, Selection
from anabranch.log.read import Rows as ReadRows
from anabranch.log.view import load, refresh
from anabranch.model.append import Appended, Part, Place, Refusal, Refused, Sequence, Unit
from anabranch.model.columns import RAW_COLUMNS
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, StreamId, WriterId
from anabranch.model.schema import RAW
from anabranch.model.stream import StreamView
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

_NUMBERED_ANEW = (Refusal.GAP, Refusal.UNKNOWN_WRITER)  # the log forgot this handle: another name begins at 0
_END = 1 << 62  # behind every position of a log
_PAYLOAD = Selection(pa.schema([RAW_COLUMNS.field("payload")]))


# Rows of the change outbox that belong to an update: what happened, and what is to be known of it.
Told: TypeAlias = Rows[tuple[str, Mapping[str, object]]]


class Entry(NamedTuple):
    """One entry, and the revision that it made."""

    revision: int
    value: bytes


class RevisionedStream:
    """A handle on one revisioned stream; for one thread at a time. Any number of processes may hold one.

    `truncate` is the store's own: it takes the stream's id and a cut.
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
        self._begin_numbers()
        with catalog.reading() as reading:
            self._adopt(load(reading, stream))

    def _adopt(self, view: StreamView) -> None:
        """Take over what is known of the stream, and what follows from it: its segment, the log that takes its entries
        (None where it is sealed), and what to add to a position in that to get a revision."""
        if not view.info.schema == RAW or len(view.current) != 1 or view.info.epoch:
            raise InvalidArgument(f"'{view.info.name}' is no revisioned stream: it must be raw and never scaled")
        self._view = view
        self._segment = view.current[0].id
        self._log = view.open_log(self._segment)
        span = view.spans[self._segment][-1]
        self._shift = span.offset - span.start

    def _begin_numbers(self) -> None:
        """Number appends anew, under another name."""
        self._writer = WriterName(WriterId(token(self._runtime.ids)))
        self._sent = 0
        self._unanswered = False  # whether the last append was sent, and what became of it is not known

    def _begin_append(self) -> None:
        # What was lost, or broken off by Ctrl-C, may have landed: under its number the next would be taken for it.
        if self._unanswered:
            self._begin_numbers()

    @property
    def name(self) -> str:
        """The stream's full name."""
        return str(self._view.info.name)

    @property
    def id(self) -> StreamId:
        """The stream's id."""
        return self._view.info.id

    def latest(self) -> int:
        """The revision now: how many entries were ever appended. Raises StreamNotFound."""
        with self._catalog.reading() as reading:
            return self._refresh(reading).length(self._segment)

    def oldest(self) -> int:
        """The first revision from which can be read."""
        with self._catalog.reading() as reading:
            return self._refresh(reading).segments[self._segment].head

    def last(self) -> Entry | None:
        """The newest entry that is there, or None of an empty stream."""
        with self._catalog.reading() as reading:
            return self._newest(reading)[1]

    def read(self, start: int = 0) -> Iterator[Entry]:
        """The entries behind revision `start`, in order, up to the revision as of this call. Raises Truncated."""
        stop = self.latest()

        def page(revision: int) -> Plan:
            with self._catalog.reading() as reading:
                view = self._refresh(reading)
                if below_head(view, {self._segment: revision}):
                    raise truncated(view)
                return self._logs.plan(reading, view, self._segment, revision, stop)

        yield from _entries(self._logs.read(page, start, stop, _PAYLOAD))

    def append(self, value: bytes, *, expected: int | None = None) -> int:
        """Append an entry, durably, and return the revision it made.

        With `expected`, only if that is the revision now: else ConditionFailed, whose `actual` is the revision.
        Raises TooLarge, StreamSealed, StreamNotFound, AppendUncertain.
        """
        self._check_size(value)
        self._begin_append()
        for _ in range(2):
            verdict = self._commit(value, expected)
            if isinstance(verdict, Appended):
                self._answered()
                return verdict.start + self._shift + 1
            self._unanswered = False
            if verdict.reason not in _NUMBERED_ANEW:
                raise self._error(verdict, expected)
            self._begin_numbers()
        raise Conflict(f"the append to '{self.name}' was refused again and again")

    def append_in_turn(self, decide: Callable[[Entry | None], tuple[bytes, Told] | None]) -> tuple[int, bool]:
        """Append what `decide` makes of the newest entry, which nobody else can be ahead of: whoever else wants to, waits.
        It is called within the transaction, so it must be quick and only compute; None appends nothing. Returns the
        revision, and False where that came of an earlier call of `decide`, whose answer was lost. Raises as `append`.
        """
        self._begin_append()
        for last in (False, False, True):
            try:
                verdict, revision = self._in_turn(decide)
            except AppendUncertain:
                # Asked again under the same number, it is a duplicate if it landed, and lands once at most.
                if last:
                    raise
                continue
            if verdict is None:
                return revision, True
            if isinstance(verdict, Appended):
                self._answered()
                made = verdict.start + self._shift + 1
                return made, made == revision + 1
            self._unanswered = False
            if verdict.reason not in _NUMBERED_ANEW:
                raise self._error(verdict, revision)
            self._begin_numbers()
        raise Conflict(f"the append to '{self.name}' was refused again and again")

    def _answered(self) -> None:
        """The append under the present number has landed."""
        self._sent += 1
        self._unanswered = False
        self._committed()

    def _in_turn(
        self, decide: Callable[[Entry | None], tuple[bytes, Told] | None]
    ) -> tuple[Appended | Refused | None, int]:
        """The verdict, None where nothing was to be appended, and the revision that it was decided on."""
        now = self._runtime.clock.now()
        writer, log = self._writer.id, self._log
        with self._catalog.writing(self.id if log is None else StreamEnd(self.id, log, writer)) as txn:
            revision, entry = self._newest(txn)
            decided = decide(entry)
            if decided is None:
                return None, revision
            value, told = decided
            sequence = Sequence(writer, self._sent, self._writer.fences.get(self._open_log(), 0))
            part = self.part(value, revision, sequence=sequence)
            self._unanswered = True
            (verdict,) = txn.append(Unit((part,)), now=now)
            # What landed before was told then.
            if isinstance(verdict, Appended) and not verdict.duplicate:
                for kind, detail in told:
                    txn.add_change(self.id, kind, detail, now=now)
        return verdict, revision

    def append_telling(self, value: bytes, told: Told, *, expected: int) -> int:
        """The same, with rows of the change outbox in the same transaction: they are there if and only if the entry is.
        After AppendUncertain both may be there."""
        part, now = self.part(value, expected), self._runtime.clock.now()
        with self._catalog.writing(self.id) as txn:
            (verdict,) = txn.append(Unit((part,)), now=now)
            if isinstance(verdict, Appended):
                for kind, detail in told:
                    txn.add_change(self.id, kind, detail, now=now)
        if isinstance(verdict, Refused):
            raise self._error(verdict, expected)
        self._committed()
        return expected + 1

    def part(self, value: bytes, expected: int, *, sequence: Sequence | None = None) -> Part:
        """An entry as a part of somebody else's atomic unit, on the condition that the revision is `expected`. It
        travels in the catalog's row. Raises TooLarge."""
        self._check_size(value)
        event = RawEvent(None, self._runtime.clock.now(), value)
        log, message = self._open_log(), event.message
        if self._runtime.sealer is not None:
            message = self._runtime.sealer.seal(pa.py_buffer(message), inlined_place(log)).to_pybytes()
        return Part(
            log=log,
            count=1,
            schema=self._view.info.schema_version,
            place=Place(0, len(message)),
            checksum=checksum(message),
            size=event.nbytes,
            bounds=event.bounds,
            sequence=sequence,
            expected=expected - self._shift,
            data=message,
        )

    def truncate(self, revision: int) -> None:
        """Let go of the entries up to `revision`. Revisions do not change. What is gone already is let be."""
        with self._catalog.reading() as reading:
            view = self._refresh(reading)
        if revision > view.segments[self._segment].head:
            self._truncate(view.info.id, StreamCut.of(view.info.id, {self._segment: revision}))

    def _newest(self, reading: Reading) -> tuple[int, Entry | None]:
        """The revision, and the entry that made it unless that was truncated away."""
        info = reading.stream(self.id)
        if info is None:
            raise StreamNotFound(self.name)
        if info.version != self._view.info.version:
            self._adopt(load(reading, self.id))
        # The last extent of the log ends where the log does, so no other look-up is needed. It may hold nothing: a copy
        # begins with an empty log, and what was truncated away may be collected.
        last = None if self._log is None else reading.extent_before(self._log, _END)
        if last is None:
            return self._newest_of_view(reading)
        revision = last.stop + self._shift
        if revision == self._view.segments[self._segment].head:
            return revision, None
        payload = self._logs.raw_payload(last)
        if payload is not None:
            return revision, Entry(revision, payload)
        columns = self._logs.columns(reading, self._view.logs[last.log].stream, last.schema)
        newest = Piece(last, last.stop - 1, last.stop, self._shift, columns)
        (entry,) = _entries(self._logs.rows([newest], _PAYLOAD))
        return revision, entry

    def _newest_of_view(self, reading: Reading) -> tuple[int, Entry | None]:
        view = self._refresh(reading)
        revision = view.length(self._segment)
        if revision == view.segments[self._segment].head:
            return revision, None
        page = self._logs.plan(reading, view, self._segment, revision - 1, revision)
        (entry,) = _entries(self._logs.rows(page.pieces, _PAYLOAD))
        return revision, entry

    def _commit(self, value: bytes, expected: int | None) -> Appended | Refused:
        outcomes: list[Outcome] = []
        draft = Draft(
            log=self._open_log(),
            batch=RawEvent(None, self._runtime.clock.now(), value),
            schema=self._view.info.schema,
            schema_version=self._view.info.schema_version,
            writer=self._writer,
            first=self._sent,
            expected=None if expected is None else expected - self._shift,
        )
        works = (Work((draft,), outcomes.append),)
        self._unanswered = True
        (outcome,) = self._committer.commit(self._committer.prepare(works))
        if isinstance(outcome, AnabranchError):
            raise outcome
        return outcome[0]

    def _error(self, refused: Refused, expected: int | None) -> AnabranchError:
        match refused.reason:
            case Refusal.CONDITION:
                assert expected is not None
                return ConditionFailed(expected, refused.actual + self._shift)
            case Refusal.FENCED:
                return Fenced(0, refused.actual)
            case _:
                # Sealed, or deleted: the catalog knows which.
                with self._catalog.reading() as reading:
                    self._adopt(load(reading, self.id))
                return StreamSealed(self.name)

    def _check_size(self, value: bytes) -> None:
        if len(value) > self._runtime.settings.event_bytes_max:
            raise TooLarge("an entry of a revisioned stream", len(value), self._runtime.settings.event_bytes_max)

    def _refresh(self, reading: Reading) -> StreamView:
        view = refresh(reading, self._view)
        if view is not self._view:
            self._adopt(view)
        return view

    def _open_log(self) -> LogId:
        if self._log is None:
            raise StreamSealed(self.name)
        return self._log


def _entries(read: Iterable[ReadRows]) -> Iterator[Entry]:
    for rows in read:
        for i, value in enumerate(rows.batch.column(0).to_pylist()):
            yield Entry(rows.first + i + 1, value)
