"""Wounds of transactions, byte streams, upkeep, watermarks and notifications; see `testing.wounds`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final, cast

from anabranch.catalog.port import Catalog, Checkpointed, Reading
from anabranch.core import watermarks
from anabranch.core.notifications import Notification
from anabranch.core.scaling import Load, Pace, plan_scaling
from anabranch.core.watermarks import TimeState, Watermark
from anabranch.log.view import load
from anabranch.model.append import Unit
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.policy import ByRate
from anabranch.readers.byte_map import ByteMap
from anabranch.readers.notifications import journal
from anabranch.readers.notifications.journal import Journal
from anabranch.runtime.ports import Runtime
from anabranch.store import byte_streams
from anabranch.streams import publish, rescale
from anabranch.streams.byte_writer import ByteWriter
from anabranch.streams.publish import Publication
from anabranch.streams.stage import slice_again
from anabranch.streams.transaction import row, sweep, transaction
from anabranch.streams.transaction.kept import kept
from anabranch.streams.transaction.row import Row
from anabranch.streams.transaction.transaction import Transaction, end
from anabranch.streams.writer import Writer
from anabranch.testing.clients import LISTENERS, SCRIBES, TIMEKEEPERS, UPKEEPERS, Cast
from anabranch.testing.clients.maintain import collect
from anabranch.testing.clients.read import read
from anabranch.testing.clients.scale import scale
from anabranch.testing.clients.transactions import transact
from anabranch.testing.faults import Action
from anabranch.testing.simulation import Weather
from anabranch.testing.wounds import Wound, _replaced

__all__ = ["TRANSACTION_WOUNDS"]


# ---------------------------------------------------------------------- transactions


def commit_stream_by_stream() -> AbstractContextManager[None]:
    """A transaction's streams get their events one after another, each in a transaction of its own."""
    whole: Any = publish.publish

    def parted(catalog: Any, blobs: Any, runtime: Any, publications: Any, *, request: str, **more: Any) -> bool:
        *others, last = publications or [None]
        for each in others:
            whole(catalog, blobs, runtime, [each], request=f"{request} {each.stream:016x}")
        committed: bool = whole(catalog, blobs, runtime, [last] if last else [], request=request, **more)
        return committed

    return _replaced(transaction, "publish", parted)


def publish_what_is_aborted() -> AbstractContextManager[None]:
    """Whoever aborts a transaction publishes what was flushed."""
    real = Transaction.abort

    def abort(self: Transaction, *args: Any) -> None:
        with self._catalog.reading() as reading:
            staged = kept(reading, self.id)
        real(self, *args)
        publications = [Publication(stream, parts) for stream, parts in sorted(staged.items())]
        publish.publish(self._catalog, self._blobs, self._runtime, publications, request=f"aborted {self.id}")

    return _replaced(Transaction, "abort", abort)


def forget_a_segment_after_a_scale() -> AbstractContextManager[None]:
    """What is sliced anew for segments that were scaled meanwhile lacks the last of them."""
    real = slice_again

    def careless(*args: Any) -> Any:
        staged = real(*args)
        return replace(staged, runs=staged.runs[:-1]) if len(staged.runs) > 1 else staged

    return _replaced(publish, "slice_again", careless)


def commit_what_was_swept() -> AbstractContextManager[None]:
    """A commit does not look whether the transaction was aborted."""

    def careless(txn: Reading, ident: str) -> Row:
        return row.need_row(txn, ident)

    return _replaced(transaction, "need_open", careless)


@contextmanager
def sweep_the_living() -> Iterator[None]:
    """Whoever sweeps does not look until when a transaction's lease holds."""
    real = end

    def careless(catalog: Catalog, runtime: Runtime, ident: str, reason: str, **more: Any) -> bool:
        return real(catalog, runtime, ident, reason)

    def rows(txn: Reading) -> list[Row]:
        return [replace(each, info=replace(each.info, expires_at=Micros(0))) for each in row.open_rows(txn)]

    with _replaced(sweep, "end", careless), _replaced(sweep, "open_rows", rows):
        yield


def never_sweep() -> AbstractContextManager[None]:
    """Transactions that were left stay open for ever."""
    return _replaced(sweep, "open_rows", lambda txn: [])


# ---------------------------------------------------------------------- bytes


def truncate_one_chunk_too_far() -> AbstractContextManager[None]:
    """The chunk that holds the position is let go of as well."""
    real = ByteMap.cut

    def careless(self: ByteMap, offset: int) -> StreamCut | None:
        return real(self, min(offset + 1, self.events))

    return _replaced(ByteMap, "cut", careless)


def begin_a_byte_late() -> AbstractContextManager[None]:
    """A writer takes the stream to end a byte behind its end."""
    real = ByteWriter

    def careless(*args: Any, position: int, **more: Any) -> Any:
        return real(*args, position=position + (position > 0), **more)

    return _replaced(byte_streams, "ByteWriter", careless)


@contextmanager
def let_two_write_bytes() -> Iterator[None]:
    """Writers of a byte stream bear names of their own, and do not say behind what they append."""
    real = ByteWriter._hand_over

    def careless(self: ByteWriter) -> None:
        self._writer = cast(Writer, _Unconditional(self._writer))
        real(self)

    with _replaced(byte_streams, "_WRITER", None), _replaced(ByteWriter, "_hand_over", careless):
        yield


class _Unconditional:
    """A writer that appends wherever the tail is."""

    def __init__(self, writer: Any) -> None:
        self._inner = writer

    def write_batch(self, data: Any, **condition: Any) -> Any:
        return self._inner.write_batch(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# ---------------------------------------------------------------------- upkeep


def scale_without_the_lease() -> AbstractContextManager[None]:
    """Whoever scales by load does not look whether another process is at it."""
    return _replaced(rescale, "_LEASE", _NoBodysLease("rescale"))


class _NoBodysLease(str):
    """A kind of lease that no other equals."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return False


def split_without_a_rest() -> AbstractContextManager[None]:
    """A segment is split again as soon as it was made."""
    real = plan_scaling

    def hasty(view: Any, policy: ByRate, loads: dict[SegmentId, Load], pace: Pace) -> Any:
        hot = {segment: Load(each.short or 1e9, each.long or 1e9, 10**12) for segment, each in loads.items()}
        return real(view, policy, hot, pace)

    return _replaced(rescale, "plan_scaling", hasty)


# ---------------------------------------------------------------------- watermarks


def let_the_watermark_go_back() -> AbstractContextManager[None]:
    """The watermark is the least of what its writers noted, also where that was more before."""

    def careless(state: TimeState, tail: StreamCut, now: Micros) -> TimeState:
        return _marked(state, tail, now, min)

    return _replaced(watermarks, "_marked", careless)


def believe_the_fastest_writer() -> AbstractContextManager[None]:
    """The watermark is the greatest of what its writers noted."""

    def careless(state: TimeState, tail: StreamCut, now: Micros) -> TimeState:
        greatest = max((noted.time_us for noted in state.writers.values()), default=None)
        if greatest is None or (state.mark is not None and greatest <= state.mark.time_us):
            return state
        return _marked(state, tail, now, max)

    return _replaced(watermarks, "_marked", careless)


def _marked(state: TimeState, tail: StreamCut, now: Micros, choose: Callable[[Sequence[Micros]], Micros]) -> TimeState:
    times = [noted.time_us for noted in state.writers.values()]
    if not times or state.latest_us is None:
        return state
    return replace(state, mark=Watermark(choose(times), tail, state.latest_us, now))


# ---------------------------------------------------------------------- notifications


def tell_twice() -> AbstractContextManager[None]:
    """A page of changes is noted down though another process was first."""

    def careless(self: Journal, rows: Sequence[Notification], stream: StreamId, position: int, reached: int) -> None:
        with self._catalog.writing(stream) as txn:
            view = load(txn, stream)
            log = view.open_log(view.current[0].id)
            assert log is not None
            if rows:
                unit = Unit((self._part(rows, log, view.info.schema_version),))
                txn.append(unit, now=self._runtime.clock.now())
            txn.put_piece(Checkpointed(journal._KIND, journal._PIECE, {"sequence": reached}))

    return _replaced(Journal, "_note", careless)


def skip_a_change() -> AbstractContextManager[None]:
    """The last change of a page is taken for noted down."""
    real = Journal._note

    def careless(self: Journal, rows: Sequence[Notification], stream: StreamId, position: int, reached: int) -> None:
        real(self, rows[:-1] if len(rows) > 1 else rows, stream, position, reached)

    return _replaced(Journal, "_note", careless)


# Little else than transactions.
_DENSE: Final[Sequence[Cast]] = (
    (
        ("transact", transact),
        ("transact", transact),
        ("transact", transact),
        ("read", read),
        ("scale", scale),
        ("collect", collect),
    ),
)
_SLOW: Final[Weather] = {
    "catalog.writing": {Action.DELAY_BEFORE: 0.3},
    "writing.commit": {Action.UNCERTAIN_LANDED: 0.05},
}

TRANSACTION_WOUNDS: Final = (
    Wound(commit_stream_by_stream, ("torn atomic unit", "refused, and yet there"), casts=_DENSE),
    Wound(publish_what_is_aborted, ("refused, and yet there",), casts=_DENSE),
    Wound(forget_a_segment_after_a_scale, ("acknowledged, and not there", "torn atomic unit"), casts=_DENSE),
    Wound(commit_what_was_swept, ("was told to be", "torn atomic unit", "not there", "is not stored"), casts=_DENSE),
    Wound(sweep_the_living, ("before its lease runs out",), casts=_DENSE),
    Wound(never_sweep, (" is open",), casts=_DENSE),
    Wound(truncate_one_chunk_too_far, ("nobody let go of more",), casts=SCRIBES),
    Wound(begin_a_byte_late, ("do not follow each other", "nobody wrote what is there", "is not there"), casts=SCRIBES),
    Wound(let_two_write_bytes, ("do not follow each other", "nobody wrote what", "is not there"), casts=SCRIBES),
    Wound(scale_without_the_lease, ("was at it all the while",), _SLOW, UPKEEPERS),
    Wound(split_without_a_rest, ("ms after it was made",), casts=UPKEEPERS),
    Wound(let_the_watermark_go_back, ("back to",), casts=TIMEKEEPERS),
    Wound(believe_the_fastest_writer, ("has not noted more than", "behind the watermark"), casts=TIMEKEEPERS),
    Wound(tell_twice, ("twice",), _SLOW, LISTENERS),
    Wound(skip_a_change, ("is told, and these changes",), casts=LISTENERS),
)
