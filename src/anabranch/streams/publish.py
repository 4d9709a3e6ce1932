"""Publishing: staged events of one or several streams become visible together, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch.blobs.port import Blobs
from anabranch.blobs.sealed import blob_place, inlined_place
from anabranch.catalog.port import Catalog, Checkpointed, Reading, Writing
from anabranch.core.checksum import checksum
from anabranch.core.codec import decode, encode
from anabranch.errors import AppendUncertain, ConditionFailed, Conflict, LeaseExpired, RequestMismatch, StoreUnavailable
from anabranch.model.append import BlobEntry, Part, Place, Refusal, Refused, Unit, Verdict
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView
from anabranch.runtime.ports import Runtime
from anabranch.runtime.sealing import Sealer
from anabranch.streams.find import need_view
from anabranch.streams.scale import truncate_stream
from anabranch.streams.stage import Run, Staged, put_message, slice_again

_OPERATION = "publish"
_SERIES = "published"
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Publication:
    """What one stream gets. With `replace`, everything before it is truncated in the same transaction, so that the
    stream holds exactly these events."""

    stream: StreamId
    staged: tuple[Staged, ...]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Numbered:
    """The place of a publication in a series whose numbers rise, such as the batches of a streaming query. Of a series
    the catalog keeps the last number, for ever; who asks for that or a lower one again repeats what was published."""

    series: str
    number: int


def publish(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    publications: Sequence[Publication],
    *,
    request: str | Numbered,
    beside: Sequence[Part] = (),
    settle: Callable[[Writing, Micros], None] | None = None,
) -> bool:
    """Append all publications as one atomic unit, and `beside` them parts of the caller's own; False, and nothing done,
    where `request` was published before.

    Publications for one stream run beside whatever concerns others; those for several wait for their turn among all changes.

    `settle` changes more in the same transaction, ahead of the rest; where it raises, nothing is published. It sees single
    pieces and leases alone. A request id in text is remembered for `limits.REQUESTS_KEPT_US`. Staged batches keep their order. Raises StreamNotFound, StreamSealed, LeaseExpired where the collector's horizon
    has passed a staged blob, ConditionFailed where a part of the caller's expected another length of its log,
    AppendUncertain where even asking again under the same request failed.
    """
    settled = [replace(each, staged=_settle(blobs, runtime, each.staged)) for each in publications]
    uncertain: AppendUncertain | None = None
    for _ in range(_TRIES):
        try:
            return _publish(catalog, blobs, runtime, settled, request, beside, settle)
        except AppendUncertain as exc:
            uncertain = exc  # the request id tells the retry whether it took place
        except StoreUnavailable:
            if uncertain is None:
                raise
    assert uncertain is not None
    raise uncertain


def last_published(catalog: Catalog, series: str) -> int | None:
    """The last number of a series; None where nothing was published in it."""
    with catalog.reading() as reading:
        return _last(reading, series)


def end_series(catalog: Catalog, series: str) -> None:
    """Forget a series in which nothing will be published any more."""
    with catalog.writing(f"{_SERIES} {series}") as txn:
        txn.drop_piece(_SERIES, series)


def _publish(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    publications: Sequence[Publication],
    request: str | Numbered,
    beside: Sequence[Part],
    settle: Callable[[Writing, Micros], None] | None,
) -> bool:
    now = runtime.clock.now()
    streams = {publication.stream for publication in publications}
    # The parts beside it need no more than the locks of their logs, which the append takes: of their stream nothing is read.
    with catalog.writing(streams.pop() if len(streams) == 1 else None) as txn:
        if _was_published(txn, request):
            return False
        if settle is not None:
            settle(txn, now)
        parts: list[Part] = list(beside)
        entries: dict[str, BlobEntry] = {}
        for publication in publications:
            view = need_view(txn, publication.stream, unsealed=True)
            for staged in publication.staged:
                parts += _parts(txn, blobs, runtime.sealer, view, staged)
                if staged.blob is not None:
                    entries[staged.blob.key] = staged.blob
        before = {each.stream: need_view(txn, each.stream) for each in publications if each.replace}
        if parts:
            _check(parts, txn.append(Unit(tuple(parts)), now=now, blobs=tuple(entries.values())))
        for view in before.values():
            head = StreamCut.of(view.info.id, {segment.id: view.length(segment.id) for segment in view.current})
            truncate_stream(txn, need_view(txn, view.info.id), head, now)
        if isinstance(request, Numbered):
            txn.put_piece(Checkpointed(_SERIES, request.series, {"number": request.number}))
        else:
            txn.record_request(request, _OPERATION, "{}", now=now)
    return True


def _was_published(txn: Reading, request: str | Numbered) -> bool:
    if isinstance(request, Numbered):
        last = _last(txn, request.series)
        return last is not None and last >= request.number
    known = txn.request(request)
    if known is not None and known[0] != _OPERATION:
        raise RequestMismatch(f"request '{request}' was '{known[0]}'; it can't publish as well")
    return known is not None


def _last(txn: Reading, series: str) -> int | None:
    piece = txn.piece(_SERIES, series)
    return None if piece is None else int(str(piece.value["number"]))


def _check(parts: Sequence[Part], verdicts: Sequence[Verdict]) -> None:
    for part, verdict in zip(parts, verdicts, strict=True):
        if not isinstance(verdict, Refused) or verdict.reason is Refusal.UNIT:
            continue
        if verdict.reason is Refusal.EXPIRED:
            raise LeaseExpired("what was staged may have been collected: its lease ran out before it was published")
        if verdict.reason is Refusal.CONDITION and part.expected is not None:
            raise ConditionFailed(part.expected, verdict.actual)
        raise Conflict(f"the publication was refused: {verdict.reason.value}")


def _settle(blobs: Blobs, runtime: Runtime, staged: tuple[Staged, ...]) -> tuple[Staged, ...]:
    """Small batches travel as bytes; where they add up to more than a catalog row should carry, write them down."""
    carried = [each.data for each in staged if each.data is not None]
    if sum(map(len, carried)) <= runtime.settings.inline_bytes_max:
        return staged
    return written_down(blobs, runtime, staged)


def written_down(blobs: Blobs, runtime: Runtime, staged: Sequence[Staged]) -> tuple[Staged, ...]:
    """The same batches, all of them durable: those that would travel as bytes lie in blobs of their own."""
    settled = []
    for each in staged:
        if each.data is not None:
            blob, place, digest = put_message(blobs, runtime, pa.py_buffer(each.data))
            each = replace(each, blob=blob, data=None, place=place, checksum=digest)
        settled.append(each)
    return tuple(settled)


def _parts(txn: Writing, blobs: Blobs, sealer: Sealer | None, view: StreamView, staged: Staged) -> list[Part]:
    current = {segment.range: segment for segment in view.current}
    schema = txn.schema(view.info.id, staged.schema_version)
    if not staged.ranges <= current.keys():
        staged = slice_again(_message(blobs, sealer, staged), staged, schema, tuple(current))
    parts = []
    for run in staged.runs:
        log = view.open_log(current[run.range].id)
        assert log is not None
        part = Part(
            log=log,
            count=run.count,
            schema=staged.schema_version,
            place=replace(staged.place, row=run.row),
            checksum=staged.checksum,
            size=run.size,
            bounds=run.bounds,
            blob=None if staged.blob is None else staged.blob.key,
        )
        parts.append(part if staged.data is None else _inlined(part, staged, run, schema, sealer))
    return parts


def _inlined(part: Part, staged: Staged, run: Run, schema: StreamSchema, sealer: Sealer | None) -> Part:
    """A part that carries its own rows alone."""
    batch = decode(_data(staged), schema.columns)
    message = encode(batch.slice(run.row, run.count))
    if sealer is not None:
        message = sealer.seal(message, inlined_place(part.log))
    return replace(part, place=Place(0, message.size), checksum=checksum(message), data=message.to_pybytes())


def _message(blobs: Blobs, sealer: Sealer | None, staged: Staged) -> pa.Buffer:
    if staged.blob is None:
        return _data(staged)
    key, offset = staged.blob.key, staged.place.offset
    stored = blobs.get(key, offset, staged.place.length)
    return stored if sealer is None else sealer.unseal(stored, blob_place(key, offset), key)


def _data(staged: Staged) -> pa.Buffer:
    assert staged.data is not None
    return pa.py_buffer(staged.data)
