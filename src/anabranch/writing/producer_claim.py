"""Opening a producer: reads its row, or claims it for a new epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch import limits
from anabranch.catalog.port import Catalog, Writing
from anabranch.errors import Conflict, Fenced, InvalidArgument, StreamNotFound
from anabranch.model.ids import Micros, StreamId
from anabranch.model.producer import ProducerState, check_producer_name, is_unnamed
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class OpenedProducer:
    """A producer as it was opened. `last` is the number of the last append before the opening, -1 if there was none in
    this epoch."""

    stream: StreamId
    name: str
    epoch: int
    last: int


def open_producer(catalog: Catalog, runtime: Runtime, stream: StreamId, name: str, epoch: int | None) -> OpenedProducer:
    """Open a producer of a stream, new or not; see `Store.producer`. Durable when it returns. Raises StreamNotFound,
    Fenced, InvalidArgument, and Conflict for a stream that has too many."""
    _check(name, epoch)
    if epoch is not None:
        with catalog.reading() as txn:
            found = txn.producer(stream, name)
        if found is not None and found.epoch == epoch:
            return OpenedProducer(stream, name, epoch, found.last)
    with catalog.writing(stream) as writing:
        if writing.stream(stream) is None:
            raise StreamNotFound(f"{stream:016x}")
        now = runtime.clock.now()
        opened = _claimed(writing, stream, name, epoch, now)
        writing.put_producer(stream, name, replace(opened, seen_at=now))
    return OpenedProducer(stream, name, opened.epoch, opened.last)


def _claimed(txn: Writing, stream: StreamId, name: str, epoch: int | None, now: Micros) -> ProducerState:
    found = txn.producer(stream, name)
    if found is None:
        count = txn.count_producers(stream)
        if count >= limits.PRODUCERS_PER_STREAM_MAX and not _dropped_abandoned(txn, stream, now):
            # No other is removed automatically: a repeat of its last append could no longer be distinguished from a new one.
            raise Conflict(
                f"the stream has {count:,} producers, the maximum; remove those that will not append again "
                "(store.producers.drop)"
            )
        return ProducerState(epoch or 0)
    if epoch is None:
        return replace(found, epoch=found.epoch + 1)
    if epoch < found.epoch:
        raise Fenced(epoch, found.epoch)
    return found if epoch == found.epoch else replace(found, epoch=epoch, last=-1)


def _dropped_abandoned(txn: Writing, stream: StreamId, now: Micros) -> int:
    """Remove the producers of remote writers that were given no name and never closed: nobody else knows their names, so
    after a while nobody repeats their appends. Returns how many."""
    horizon, after, dropped = now - limits.PRODUCERS_UNNAMED_KEPT_US, "", 0
    while page := txn.producers(stream, after, limits.PRODUCERS_PAGE):
        after = page[-1][0]
        for name, state in page:
            if is_unnamed(name) and state.seen_at < horizon:
                dropped += txn.drop_producer(stream, name)
    return dropped


def _check(name: str, epoch: int | None) -> None:
    check_producer_name(name)
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 62):
        raise InvalidArgument(f"expected a producer's epoch as an integer of at least 0, got {epoch!r:.100}")
