"""Publishing: staged events of one or several streams become visible together, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch.blobs.encryption_contexts import blob_context, inline_context
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.catalog.state.transaction import PUBLISHED, PublishedSeries
from anabranch.core.checksum import checksum
from anabranch.core.codec import decode, encode
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    BlobMissing,
    ConditionFailed,
    Conflict,
    CorruptBlob,
    LeaseExpired,
    RequestMismatch,
    StoreUnavailable,
)
from anabranch.log.view import refuse_other_kind
from anabranch.model.append import BlobEntry, BlobLocation, Part, Refusal, Refused, Unit, Verdict
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import UNCERTAIN
from anabranch.runtime.sealing import Sealer
from anabranch.streams.directory.find import need_view
from anabranch.streams.segments import need_open_log, truncate_stream
from anabranch.writing.staging import StagedBatch, StagedRun, put_message, slice_again

_OPERATION = "publish"
_RETRY = replace(UNCERTAIN, attempts_max=3)


@dataclass(frozen=True, slots=True)
class Publication:
    """The events that one stream receives. With `replace`, all earlier events are truncated in the same transaction, so
    that the stream holds exactly these."""

    stream: StreamId
    staged: tuple[StagedBatch, ...]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class NumberedUnit:
    """The number of a publication in a series with increasing numbers, such as the batches of a streaming query. The
    catalog keeps the last number of each series forever; a publication with that number or a lower one is a repeat."""

    series: str
    number: int


def publish(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    publications: Sequence[Publication],
    *,
    request: str | NumberedUnit,
    extra_parts: Sequence[Part] = (),
    before_append: Callable[[Writing, Micros], None] | None = None,
) -> bool:
    """Append all publications, with the caller's `extra_parts`, as one atomic unit. Returns False and does nothing
    where `request` was published before.

    Publications for one stream run concurrently with changes of other streams; those for several streams are serialized
    with all changes.

    `before_append` makes further changes in the same transaction, first; if it raises, nothing is published. It may
    access only single state entries and leases. A text request id is kept for `limits.REQUESTS_KEPT_US`. Staged batches
    keep their order. Blobs older than the collector's horizon are rewritten, as in commits.

    Raises StreamNotFound, StreamSealed, LeaseExpired where a staged blob was collected, ConditionFailed where one of
    `extra_parts` expected another length of its log, AppendUncertain where even a retry under the same request failed.
    """
    prepared = [_prepared(blobs, runtime, each, not_before=0) for each in publications]
    uncertain: AppendUncertain | None = None
    expired: _Expired | None = None
    retries = _RETRY.begin(runtime)
    while True:
        try:
            if expired is not None:
                publications = [_rewrite_expired(blobs, runtime, each, expired.horizon) for each in publications]
                prepared = [_prepared(blobs, runtime, each, not_before=expired.horizon) for each in publications]
            return _publish(catalog, blobs, runtime, prepared, request, extra_parts, before_append)
        except _Expired as exc:
            failure: AnabranchError = exc
            expired = exc
        except AppendUncertain as exc:
            failure = exc
            uncertain = exc  # the request id tells the retry whether the transaction took place
        except StoreUnavailable as exc:
            failure = exc
            if uncertain is None:
                raise
        if not retries.again(failure):
            raise uncertain or failure


def last_published(catalog: Catalog, series: str) -> int | None:
    """The last number of a series; None where nothing was published in it."""
    with catalog.reading() as reading:
        return _last_number(reading, series)


def end_series(catalog: Catalog, series: str) -> None:
    """Forget a series that gets no more publications."""
    with catalog.writing(f"{PUBLISHED.name} {series}") as txn:
        txn.drop_state(PUBLISHED, series)


def _publish(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    publications: Sequence[Publication],
    request: str | NumberedUnit,
    extra_parts: Sequence[Part],
    before_append: Callable[[Writing, Micros], None] | None,
) -> bool:
    now = runtime.clock.now()
    streams = {publication.stream for publication in publications}
    # The extra parts need only the locks of their logs, which the append takes: nothing of their stream is read.
    with catalog.writing(streams.pop() if len(streams) == 1 else None) as txn:
        if _was_published(txn, request):
            return False
        if before_append is not None:
            before_append(txn, now)
        parts: list[Part] = list(extra_parts)
        entries: dict[str, BlobEntry] = {}
        for publication in publications:
            view = need_view(txn, publication.stream, unsealed=True)
            for staged in publication.staged:
                parts += _parts(txn, blobs, runtime.sealer, view, staged)
                if staged.blob is not None:
                    entries[staged.blob.key] = staged.blob
        before = {each.stream: need_view(txn, each.stream) for each in publications if each.replace}
        if parts:
            _check_verdicts(parts, txn.append(Unit(tuple(parts)), now=now, blobs=tuple(entries.values())))
        for view in before.values():
            head = StreamCut.of(view.info.id, {segment.id: view.length(segment.id) for segment in view.current})
            truncate_stream(txn, need_view(txn, view.info.id), head, now)
        if isinstance(request, NumberedUnit):
            txn.put_state(PUBLISHED, request.series, PublishedSeries(request.number))
        else:
            txn.record_request(request, _OPERATION, "{}", now=now)
    return True


def _was_published(txn: Reading, request: str | NumberedUnit) -> bool:
    if isinstance(request, NumberedUnit):
        last = _last_number(txn, request.series)
        return last is not None and last >= request.number
    recorded = txn.request(request)
    if recorded is not None and recorded[0] != _OPERATION:
        raise RequestMismatch(f"request '{request}' was used for '{recorded[0]}'; publish under another request id")
    return recorded is not None


def _last_number(txn: Reading, series: str) -> int | None:
    found = txn.state(PUBLISHED, series)
    return None if found is None else found.number


def _check_verdicts(parts: Sequence[Part], verdicts: Sequence[Verdict]) -> None:
    for part, verdict in zip(parts, verdicts, strict=True):
        if not isinstance(verdict, Refused) or verdict.reason is Refusal.UNIT:
            continue
        if verdict.reason is Refusal.EXPIRED:
            raise _Expired(verdict.actual)
        if verdict.reason is Refusal.CONDITION and part.expected is not None:
            raise ConditionFailed(part.expected, verdict.actual)
        raise Conflict(f"the publication was refused: {verdict.reason.value}")


def _prepared(blobs: Blobs, runtime: Runtime, publication: Publication, *, not_before: int) -> Publication:
    """The publication, with small batches inline; if their sum exceeds `inline_bytes_max`, they are written to blobs."""
    staged = publication.staged
    inline = [each.data for each in staged if each.data is not None]
    if sum(map(len, inline)) <= runtime.settings.inline_bytes_max:
        return publication
    return replace(publication, staged=write_blobs(blobs, runtime, staged, not_before=not_before))


def write_blobs(
    blobs: Blobs, runtime: Runtime, staged: Sequence[StagedBatch], *, not_before: int
) -> tuple[StagedBatch, ...]:
    """The same batches, all of them durable: batches held in memory are written to blobs of their own, whose begin time
    is at least `not_before` (µs)."""
    prepared = []
    for each in staged:
        if each.data is not None:
            blob, place, digest = put_message(blobs, runtime, pa.py_buffer(each.data), not_before=not_before)
            each = replace(each, blob=blob, data=None, place=place, checksum=digest)
        prepared.append(each)
    return tuple(prepared)


def _rewrite_expired(blobs: Blobs, runtime: Runtime, publication: Publication, horizon: int) -> Publication:
    """The same publication without blobs from before the horizon: their contents are written again, with a later time.
    Raises LeaseExpired where one was collected."""
    staged = []
    for each in publication.staged:
        if each.blob is not None and each.blob.begun_at < horizon:
            try:
                message = _message(blobs, runtime.sealer, each)
            except BlobMissing as exc:
                raise _Expired(horizon) from exc
            blob, place, digest = put_message(blobs, runtime, message, not_before=horizon)
            each = replace(each, blob=blob, place=place, checksum=digest)
        staged.append(each)
    return replace(publication, staged=tuple(staged))


class _Expired(LeaseExpired):
    """The collector's horizon has passed a staged blob."""

    def __init__(self, horizon: int) -> None:
        super().__init__("the staged events may have been collected: their lease expired before they were published")
        self.horizon = horizon


def _parts(txn: Writing, blobs: Blobs, sealer: Sealer | None, view: StreamView, staged: StagedBatch) -> list[Part]:
    current = {segment.range: segment for segment in view.current}
    schema = txn.schema(view.info.id, staged.schema_version)
    refuse_other_kind(view.info, raw=schema.raw)
    if not staged.ranges <= current.keys():
        staged = slice_again(_message(blobs, sealer, staged), staged, schema, tuple(current))
    parts = []
    for run in staged.runs:
        part = Part(
            log=need_open_log(view, current[run.range]).id,
            count=run.count,
            schema=staged.schema_version,
            location=replace(staged.place, row=run.row),
            checksum=staged.checksum,
            size=run.size,
            bounds=run.bounds,
            blob=None if staged.blob is None else staged.blob.key,
        )
        parts.append(part if staged.data is None else _inline_part(part, staged, run, schema, sealer))
    return parts


def _inline_part(part: Part, staged: StagedBatch, run: StagedRun, schema: StreamSchema, sealer: Sealer | None) -> Part:
    """A part that carries only its own rows inline."""
    batch = decode(_data(staged), schema.columns)
    message = encode(batch.slice(run.row, run.count))
    if sealer is not None:
        message = sealer.seal(message, inline_context(part.log))
    return replace(part, location=BlobLocation(0, message.size), checksum=checksum(message), data=message.to_pybytes())


def _message(blobs: Blobs, sealer: Sealer | None, staged: StagedBatch) -> pa.Buffer:
    if staged.blob is None:
        return _data(staged)
    key, offset = staged.blob.key, staged.place.offset
    stored = blobs.get(key, offset, staged.place.length)
    if checksum(stored) != staged.checksum:
        raise CorruptBlob(key, "wrong checksum of a staged batch")
    return stored if sealer is None else sealer.unseal(stored, blob_context(key, offset), key)


def _data(staged: StagedBatch) -> pa.Buffer:
    assert staged.data is not None
    return pa.py_buffer(staged.data)
