"""Planted faults of transactions, byte streams, upkeep, watermarks and notifications; see `planted_faults.core`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final, cast

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.listener import ALL, NOTIFIED, Notified
from anabranch.core import watermarks
from anabranch.core.watermarks import TimeState, Watermark
from anabranch.log.view import load
from anabranch.model.append import Unit
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.policy import ByRate
from anabranch.notifications.kinds import Notification
from anabranch.notifications.publisher import NotificationPublisher
from anabranch.reading.byte_index import ByteIndex
from anabranch.runtime.ports import Runtime
from anabranch.store import byte_streams
from anabranch.streams import publish
from anabranch.streams.publish import Publication
from anabranch.streams.scaling import apply as rescale
from anabranch.streams.scaling.plan import ScalingPace, SegmentLoad, plan_scaling
from anabranch.testing.faults import Action
from anabranch.transactions import record as row
from anabranch.transactions import sweep, transaction
from anabranch.transactions.flushed import flushed_batches
from anabranch.transactions.record import TransactionRow
from anabranch.transactions.transaction import Transaction, abort_transaction
from anabranch.writing.byte_writer import ByteWriter
from anabranch.writing.staging import slice_again
from anabranch.writing.writer import Writer
from tests.simulation.clients import BYTE_STREAMS, NOTIFICATIONS, UPKEEP, WATERMARKS, ClientMix
from tests.simulation.clients.maintain import collect
from tests.simulation.clients.read import read
from tests.simulation.clients.scale import scale
from tests.simulation.clients.transactions import transact
from tests.simulation.planted_faults.core import PlantedFault, _replaced
from tests.simulation.simulation import FaultRates

__all__ = ["TRANSACTION_FAULTS"]


# ---------------------------------------------------------------------- transactions


def commit_stream_by_stream() -> AbstractContextManager[None]:
    """A transaction's streams get their events one after another, each in a catalog transaction of its own."""
    whole: Any = publish.publish

    def parted(catalog: Any, blobs: Any, runtime: Any, publications: Any, *, request: str, **more: Any) -> bool:
        *others, last = publications or [None]
        for each in others:
            whole(catalog, blobs, runtime, [each], request=f"{request} {each.stream:016x}")
        committed: bool = whole(catalog, blobs, runtime, [last] if last else [], request=request, **more)
        return committed

    return _replaced(transaction, "publish", parted)


def publish_what_is_aborted() -> AbstractContextManager[None]:
    """An abort publishes what was flushed."""
    real = Transaction.abort

    def abort(self: Transaction, *args: Any) -> None:
        with self._catalog.reading() as reading:
            staged = flushed_batches(reading, self.id)
        real(self, *args)
        publications = [Publication(stream, parts) for stream, parts in sorted(staged.items())]
        publish.publish(self._catalog, self._blobs, self._runtime, publications, request=f"aborted {self.id}")

    return _replaced(Transaction, "abort", abort)


def forget_a_segment_after_a_scale() -> AbstractContextManager[None]:
    """When events are redistributed to segments that were scaled meanwhile, those of the last segment are missing."""
    real = slice_again

    def faulty(*args: Any) -> Any:
        staged = real(*args)
        return replace(staged, runs=staged.runs[:-1]) if len(staged.runs) > 1 else staged

    return _replaced(publish, "slice_again", faulty)


def commit_what_was_swept() -> AbstractContextManager[None]:
    """A commit does not check whether the transaction was aborted."""

    def faulty(txn: Reading, ident: str) -> TransactionRow:
        return row.need_row(txn, ident)

    return _replaced(transaction, "need_uncollected", faulty)


@contextmanager
def sweep_the_living() -> Iterator[None]:
    """Sweeping does not check whether a transaction's lease has expired."""
    real = abort_transaction

    def faulty(catalog: Catalog, runtime: Runtime, ident: str, reason: str, **more: Any) -> bool:
        return real(catalog, runtime, ident, reason)

    def rows(txn: Reading) -> list[TransactionRow]:
        return [replace(each, info=replace(each.info, expires_at=Micros(0))) for each in row.open_rows(txn)]

    with _replaced(sweep, "abort_transaction", faulty), _replaced(sweep, "open_rows", rows):
        yield


def never_sweep() -> AbstractContextManager[None]:
    """Abandoned transactions stay open forever."""
    return _replaced(sweep, "open_rows", lambda txn: [])


# ---------------------------------------------------------------------- bytes


def truncate_one_chunk_too_far() -> AbstractContextManager[None]:
    """The chunk that holds the position is truncated as well."""
    real = ByteIndex.cut

    def faulty(self: ByteIndex, offset: int) -> StreamCut | None:
        return real(self, min(offset + 1, self.events))

    return _replaced(ByteIndex, "cut", faulty)


def begin_a_byte_late() -> AbstractContextManager[None]:
    """A writer assumes that the stream ends one byte after its end."""
    real = ByteWriter

    def faulty(*args: Any, position: int, **more: Any) -> Any:
        return real(*args, position=position + (position > 0), **more)

    return _replaced(byte_streams, "ByteWriter", faulty)


@contextmanager
def let_two_write_bytes() -> Iterator[None]:
    """Writers of a byte stream have names of their own, and append without an expected tail."""
    real = ByteWriter._hand_over

    def faulty(self: ByteWriter) -> None:
        self._writer = cast(Writer, _Unconditional(self._writer))
        real(self)

    with _replaced(byte_streams, "_WRITER", None), _replaced(ByteWriter, "_hand_over", faulty):
        yield


class _Unconditional:
    """A writer that appends whatever the tail is."""

    def __init__(self, writer: Any) -> None:
        self._inner = writer

    def write_batch(self, data: Any, **condition: Any) -> Any:
        return self._inner.write_batch(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# ---------------------------------------------------------------------- upkeep


def scale_without_the_lease() -> AbstractContextManager[None]:
    """Scaling by load does not check whether another process is doing it."""
    return _replaced(rescale, "_LEASE", _NoBodysLease("rescale"))


class _NoBodysLease(str):
    """A kind of lease that equals no other."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return False


def split_without_a_rest() -> AbstractContextManager[None]:
    """A segment is split again right after it was created."""
    real = plan_scaling

    def hasty(view: Any, policy: ByRate, loads: dict[SegmentId, SegmentLoad], pace: ScalingPace) -> Any:
        hot = {segment: SegmentLoad(each.short or 1e9, each.long or 1e9, 10**12) for segment, each in loads.items()}
        return real(view, policy, hot, pace)

    return _replaced(rescale, "plan_scaling", hasty)


# ---------------------------------------------------------------------- watermarks


def let_the_watermark_go_back() -> AbstractContextManager[None]:
    """The watermark is the minimum of what its writers noted, even if that is less than before."""

    def faulty(state: TimeState, tail: StreamCut, now: Micros) -> TimeState:
        return _marked(state, tail, now, min)

    return _replaced(watermarks, "_advance_watermark", faulty)


def believe_the_fastest_writer() -> AbstractContextManager[None]:
    """The watermark is the maximum of what its writers noted."""

    def faulty(state: TimeState, tail: StreamCut, now: Micros) -> TimeState:
        greatest = max((noted.time_us for noted in state.writers.values()), default=None)
        if greatest is None or (state.watermark is not None and greatest <= state.watermark.time_us):
            return state
        return _marked(state, tail, now, max)

    return _replaced(watermarks, "_advance_watermark", faulty)


def _marked(state: TimeState, tail: StreamCut, now: Micros, choose: Callable[[Sequence[Micros]], Micros]) -> TimeState:
    times = [noted.time_us for noted in state.writers.values()]
    if not times or state.latest_us is None:
        return state
    return replace(state, watermark=Watermark(choose(times), tail, state.latest_us, now))


# ---------------------------------------------------------------------- notifications


def tell_twice() -> AbstractContextManager[None]:
    """A page of changes is recorded though another process recorded it first."""

    def faulty(
        self: NotificationPublisher, rows: Sequence[Notification], stream: StreamId, position: int, last_sequence: int
    ) -> None:
        with self._catalog.writing(stream) as txn:
            view = load(txn, stream)
            log = view.open_log(view.current[0].id)
            assert log is not None
            if rows:
                unit = Unit((self._part(rows, log, view.info.schema_version),))
                txn.append(unit, now=self._runtime.clock.now())
            txn.put_state(NOTIFIED, ALL, Notified(last_sequence))

    return _replaced(NotificationPublisher, "_append_page", faulty)


def skip_a_change() -> AbstractContextManager[None]:
    """The last change of a page counts as recorded."""
    real = NotificationPublisher._append_page

    def faulty(
        self: NotificationPublisher, rows: Sequence[Notification], stream: StreamId, position: int, last_sequence: int
    ) -> None:
        real(self, rows[:-1] if len(rows) > 1 else rows, stream, position, last_sequence)

    return _replaced(NotificationPublisher, "_append_page", faulty)


# Mostly transactions.
_DENSE: Final[Sequence[ClientMix]] = (
    (
        ("transact", transact),
        ("transact", transact),
        ("transact", transact),
        ("read", read),
        ("scale", scale),
        ("collect", collect),
    ),
)
_SLOW: Final[FaultRates] = {
    "catalog.writing": {Action.DELAY_BEFORE: 0.3},
    "writing.commit": {Action.UNCERTAIN_LANDED: 0.05},
}

TRANSACTION_FAULTS: Final = (
    PlantedFault(commit_stream_by_stream, ("torn atomic unit", "refused, and yet there"), mixes=_DENSE),
    PlantedFault(publish_what_is_aborted, ("refused, and yet there",), mixes=_DENSE),
    PlantedFault(forget_a_segment_after_a_scale, ("acknowledged, and not there", "torn atomic unit"), mixes=_DENSE),
    PlantedFault(
        commit_what_was_swept, ("was told to be", "torn atomic unit", "not there", "is not stored"), mixes=_DENSE
    ),
    PlantedFault(sweep_the_living, ("before its lease runs out",), mixes=_DENSE),
    PlantedFault(never_sweep, (" is open",), mixes=_DENSE),
    PlantedFault(truncate_one_chunk_too_far, ("nobody let go of more",), mixes=BYTE_STREAMS),
    PlantedFault(
        begin_a_byte_late,
        ("do not follow each other", "nobody wrote what is there", "is not there"),
        mixes=BYTE_STREAMS,
    ),
    PlantedFault(
        let_two_write_bytes, ("do not follow each other", "nobody wrote what", "is not there"), mixes=BYTE_STREAMS
    ),
    PlantedFault(scale_without_the_lease, ("was at it all the while",), _SLOW, UPKEEP),
    PlantedFault(split_without_a_rest, ("ms after it was made",), mixes=UPKEEP),
    PlantedFault(let_the_watermark_go_back, ("back to",), mixes=WATERMARKS),
    PlantedFault(believe_the_fastest_writer, ("has not noted more than", "behind the watermark"), mixes=WATERMARKS),
    PlantedFault(tell_twice, ("twice",), _SLOW, NOTIFICATIONS),
    PlantedFault(skip_a_change, ("is told, and these changes",), mixes=NOTIFICATIONS),
)
