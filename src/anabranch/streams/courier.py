"""Sees a writer's pieces through: routes them, numbers them, and follows each until it has landed or was refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    CorruptCatalog,
    Fenced,
    InvalidArgument,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
)
from anabranch.log.appender import Appender
from anabranch.log.commit import Draft, Outcome, Work
from anabranch.model.append import Appended, Refusal, Refused
from anabranch.model.ids import LogId
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ports import Runtime
from anabranch.streams.ack import ChunkState
from anabranch.streams.chunk import Piece, join, origins_of
from anabranch.streams.flight import Flight, first_refusal
from anabranch.streams.routes import Routes, Slice, points_of
from anabranch.streams.standing import Standing

_RUNS_PER_TAKE_MAX = 4  # batches of one log in a commit. Commits are decided, and if need be resolved, one at a time:
# so a log remembers (limits.WRITER_BATCHES_KEPT) all that can ever be asked for, however many are in flight
_JOIN_BYTES_MAX = 1 << 20  # pieces are put together up to this much,
_JOIN_BYTES_PER_LOG = 1 << 17  # or this much per log: a copy of it costs less than one more batch
_MOVED = (Refusal.SEALED, Refusal.GONE)  # the events belong elsewhere by now
_MISNUMBERED = (Refusal.GAP, Refusal.UNKNOWN_WRITER)  # behind a hole, these say no more than that there is one
_WATCHED_MIN = 64  # states that are done are forgotten when so many, or twice those left the last time, have gathered


class Columns(NamedTuple):
    """A schema of the stream, and its version."""

    schema: StreamSchema
    version: int


class Courier:
    """The appender's source for one writer.

    Order is kept by a barrier: after a refusal nothing more is taken until all that is in flight has landed or come
    back; then the routes are read anew and what came back goes first.
    """

    def __init__(
        self,
        appender: Appender,
        standing: Standing,
        runtime: Runtime,
        *,
        fence: int | None,
        drain: Callable[[], None],
    ) -> None:
        self._appender = appender
        self._standing = standing
        self._fence = fence
        self._drain = drain
        self._lock = runtime.tasks.lock()
        self._queue: deque[Piece] = deque()
        self._returned: list[tuple[int, Piece]] = []
        self._outstanding: dict[ChunkState, None] = {}  # no set: its order would differ from run to run
        self._watched_max = _WATCHED_MIN
        self._queue_bytes = 0
        self._flight_bytes = 0
        self._in_flight = 0
        self._orders = 0
        self._barrier = False
        self._broken = False  # a refusal left a hole in the sequence numbers
        self._left: set[LogId] = set()  # logs that said that the events belong elsewhere
        self._spread = runtime.ids.bits(63)
        self.gathered_bytes = 0  # what the writer still gathers, for the appender to know that it is worth coming
        self.refusal: AnabranchError | None = None  # the first since it was last asked for
        self.dead: AnabranchError | None = None  # set once no event can ever be appended
        self.routes = standing.renew()
        # What the writer conforms its events to: the last. What is still on its way may have the columns of one before.
        self._known = [Columns(self.routes.info.schema, self.routes.info.schema_version)]

    # accepting

    @property
    def schema(self) -> StreamSchema:
        """What pieces are to conform to from now on; also what an earlier one said is taken."""
        return self._known[-1].schema

    def learn(self) -> bool:
        """Look whether the stream has other columns by now, which pieces may have then. False where it has not."""
        info = self._standing.info()
        if info is None or info.schema_version == self._known[-1].version:
            return False
        self._known.append(Columns(info.schema, info.schema_version))
        return True

    def columns_of(self, batch: pa.RecordBatch) -> Columns:
        """The schema that a piece's batch conforms to."""
        if len(self._known) == 1:
            return self._known[0]
        return next(each for each in reversed(self._known) if each.schema.columns.equals(batch.schema))

    def enqueue(self, pieces: Sequence[Piece], state: ChunkState) -> None:
        """Take charge of pieces, and count their state among those that `flush` waits for. The caller offers this
        source to the appender."""
        with self._lock:
            self._outstanding[state] = None
            if len(self._outstanding) >= self._watched_max:
                self._forget_done()
            for piece in pieces:
                self._queue.append(piece)
                self._queue_bytes += piece.size

    def abandon(self, pieces: Iterable[Piece], error: AnabranchError) -> None:
        """Have pieces fail that never got into the queue."""
        with self._lock:
            for piece in pieces:
                self._fail(piece, error)

    def note(self, error: AnabranchError | None) -> None:
        """Remember a refusal for the next `flush`, unless there is one already."""
        self.refusal = self.refusal or error

    def outstanding(self) -> list[ChunkState]:
        """The states that are not done."""
        with self._lock:
            self._forget_done()
            return list(self._outstanding)

    def _forget_done(self) -> None:
        self._outstanding = {state: None for state in self._outstanding if not state.done}
        self._watched_max = max(_WATCHED_MIN, 2 * len(self._outstanding))

    @property
    def pending_bytes(self) -> int:
        """See `log.appender.Source`."""
        return self._queue_bytes + self.gathered_bytes

    @property
    def unsettled_bytes(self) -> int:
        """Bytes that wait or are in flight."""
        return self._queue_bytes + self._flight_bytes

    def spread(self, count: int) -> int:
        """Reserve places in the spreading of events without a key."""
        start = self._spread
        self._spread += count
        return start

    # the appender's side

    def take(self, bytes_max: int) -> list[Work]:
        """See `log.appender.Source`."""
        self._drain()
        with self._lock:
            if self._barrier:
                if self._in_flight:
                    return []
                self._recover()
            if self.dead is not None:
                self._fail_queue(self.dead)
            runs = self._take_runs(bytes_max)
            self._in_flight += 1  # a hold, so that nothing counts as landed while works are still being made
        works: list[Work] = []
        try:
            for run in runs:
                works += self._made(run)
        finally:
            with self._lock:
                self._in_flight += len(works) - 1
                if not works:
                    self._landed_all()
        return works

    def _made(self, run: list[Piece]) -> list[Work]:
        try:
            return self._route(join(run))
        except Exception as exc:
            with self._lock:
                self._barrier = self._broken = True  # numbers may have been given to works that are lost
                for piece in run:
                    self._fail(piece, as_error(exc))
            return []

    def _take_runs(self, bytes_max: int) -> list[list[Piece]]:
        runs: list[list[Piece]] = []
        left = bytes_max
        join_bytes_max = max(_JOIN_BYTES_MAX, _JOIN_BYTES_PER_LOG * len(self.routes.logs))
        while self._queue and left > 0:
            piece = self._queue[0]
            if runs and piece.load > left:
                break
            if piece.expected is not None and (self._in_flight or runs):
                self._barrier = True  # a condition is tried with nothing else on its way
                break
            joins = runs and not piece.alone and not runs[-1][0].alone
            joins = joins and self.columns_of(runs[-1][0].batch) is self.columns_of(piece.batch)
            joins = joins and sum(p.size for p in runs[-1]) + piece.size <= join_bytes_max
            if not joins and len(runs) == _RUNS_PER_TAKE_MAX:
                break
            self._queue.popleft()
            self._queue_bytes -= piece.size
            self._flight_bytes += piece.size
            left -= piece.load
            if joins:
                runs[-1].append(piece)
            else:
                runs.append([piece])
            if piece.expected is not None:
                self._barrier = True
                break
        return runs

    def _route(self, piece: Piece) -> list[Work]:
        routes = self.routes
        if piece.points is None and routes.needs_points():
            piece.points = points_of(piece.batch, self.schema, self.spread(piece.batch.num_rows))
        slices = list(routes.split(piece.batch, piece.points))
        if piece.expected is not None and len(slices) > 1:
            raise InvalidArgument("a conditional append needs all its events in one segment")
        groups = [slices] if piece.atomic else [[each] for each in slices]
        return [self._work(piece, group, routes) for group in groups]

    def _work(self, piece: Piece, slices: list[Slice], routes: Routes) -> Work:
        drafts, firsts = [], []
        columns = self.columns_of(piece.batch)
        for part in slices:
            first = self._standing.number(part.log, part.batch.num_rows)
            firsts.append(first)
            expected = None if piece.expected is None else piece.expected - routes.offsets[part.log]
            drafts.append(
                Draft(
                    log=part.log,
                    batch=part.batch,
                    size=piece.size if part.size is None else part.size,
                    schema=columns.schema,
                    schema_version=columns.version,
                    writer=self._standing.writer,
                    first=first,
                    expected=expected,
                    fence=self._fence,
                    bounds=part.bounds,
                    ahead=piece.ahead,
                )
            )
        self._orders += 1
        flight = Flight(piece, slices, firsts, routes, self._orders)
        return Work(tuple(drafts), lambda outcome: self._settle(flight, outcome))

    # what became of it

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        with self._lock:
            refused = None if isinstance(outcome, AnabranchError) else first_refusal(outcome)
            if isinstance(outcome, AnabranchError):
                if isinstance(outcome, AppendUncertain):
                    self._standing.doubt(part.log for part in flight.slices)
                self._refuse(flight, outcome)
            elif refused is None:
                for part, first, verdict in zip(flight.slices, flight.firsts, outcome, strict=True):
                    assert isinstance(verdict, Appended)
                    self._land(flight, part, first, verdict)
            elif refused.reason in _MOVED or (refused.reason in _MISNUMBERED and self._broken):
                self._barrier = True
                self._left.update(
                    part.log
                    for part, verdict in zip(flight.slices, outcome, strict=True)
                    if isinstance(verdict, Refused) and verdict.reason in _MOVED
                )
                # Of a unit, the parts for segments that are open still have left a hole there.
                self._broken = self._broken or len(flight.slices) > 1
                self._returned.append((flight.order, flight.back()))
            else:
                if refused.reason in _MISNUMBERED:
                    self._standing.doubt(part.log for part in flight.slices)  # count anew from what the log knows
                self._refuse(flight, flight.error(refused, self._standing.writer, self._fence))
            self._in_flight -= 1
            self._landed_all()

    def _land(self, flight: Flight, part: Slice, first: int, verdict: Appended) -> None:
        self._standing.land(part.log, first + part.batch.num_rows)
        start = verdict.start + flight.routes.offsets[part.log]
        for state, rows, place in origins_of(flight.piece, part.rows):
            state.land(part.segment, start + place, rows)
        self._flight_bytes -= flight.size_of(part)

    def _refuse(self, flight: Flight, error: AnabranchError) -> None:
        self._barrier = self._broken = True
        for part in flight.slices:
            for state, rows, _ in origins_of(flight.piece, part.rows):
                state.fail(error, rows)
        self.note(error)

    def _fail(self, piece: Piece, error: AnabranchError) -> None:
        for state, rows in piece.origins:
            state.fail(error, rows)
        self.note(error)

    def _landed_all(self) -> None:
        """Once nothing is in flight, let what came back go first, and have the appender ask again. Needs the lock."""
        if self._in_flight:
            return
        self._flight_bytes = 0
        for _, piece in sorted(self._returned, key=lambda each: each[0], reverse=True):
            self._queue.appendleft(piece)
            self._queue_bytes += piece.size
        self._returned.clear()
        if self._queue or self.gathered_bytes:
            self._appender.again(self)

    # beginning anew

    def _recover(self) -> None:
        """With nothing in flight: read the routes anew, and number on from what has landed. Needs the lock."""
        self._barrier = False
        try:
            self.routes = self._standing.renew()
            self._refuse_circles()
        except StreamNotFound:
            self.dead = StreamNotFound(str(self.routes.info.name))
        except (StreamSealed, Fenced) as exc:
            self.dead = exc
        except Exception as exc:
            self._barrier = True
            self._fail_queue(as_error(exc))
            return
        self._broken = False
        if self.dead is not None:
            self._fail_queue(self.dead)

    def _refuse_circles(self) -> None:
        """Raise CorruptCatalog where a segment that is open lies in a log that takes no more: to ask again would never end."""
        left, self._left = self._left, set()
        for log in left.intersection(self.routes.logs):
            name = self.routes.info.name
            raise CorruptCatalog(
                f"a segment of '{name}' is open, but its log {log} is not; see: anabranch check {name}"
            )

    def _fail_queue(self, error: AnabranchError) -> None:
        while self._queue:
            self._fail(self._queue.popleft(), error)
        self._queue_bytes = 0


def as_error(exc: Exception) -> AnabranchError:
    """What an append failed with, as an error of the store."""
    if isinstance(exc, AnabranchError):
        return exc
    error = StoreUnavailable(f"the append failed: {exc!r}")
    error.__cause__ = exc
    return error
