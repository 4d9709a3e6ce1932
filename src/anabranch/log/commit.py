"""One commit: encodes events, makes them durable, has the catalog decide, and resolves an unknown outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from anabranch.blobs.encryption_contexts import inline_context
from anabranch.blobs.keys import commit_key
from anabranch.blobs.layout import frame
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Writing
from anabranch.core.checksum import checksum
from anabranch.core.codec import encode, event_bounds
from anabranch.core.raw_event import RawEvent
from anabranch.errors import AnabranchError, AppendUncertain
from anabranch.log.prewrite import PrewrittenMessage, prewrite
from anabranch.model.append import (
    Appended,
    BlobEntry,
    BlobLocation,
    Commit,
    Part,
    Progress,
    Refusal,
    Refused,
    TimeBounds,
    Unit,
    Verdict,
)
from anabranch.model.append import (
    Sequence as WriterSequence,
)
from anabranch.model.ids import LogId, Micros, WriterId
from anabranch.model.producer import PlacedEvents, ProducerSequence
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ids import token
from anabranch.runtime.log_events import APPEND_RECOVERED, APPEND_UNCERTAIN, APPEND_UNRESOLVED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import RetryPolicy
from anabranch.runtime.tracing import AppendSpan

# At most five attempts; once `settings.catalog_lock_s` have passed, the second one is the last.
_RESOLVE = RetryPolicy(pause_s_min=0.05, pause_s_max=1.0, attempts_min=2, attempts_max=5, errors=(AnabranchError,))
_REWRITE_TRIES = 3


@dataclass(frozen=True, slots=True)
class Repeated:
    """A batch that its producer had appended before; nothing was appended now. `events` are the events of the first
    append, None if its answer is no longer kept. `resolved`: the first append may be this commit's own, whose answer
    was lost."""

    events: tuple[PlacedEvents, ...] | None
    resolved: bool = False


Outcome = tuple[Verdict, ...] | Repeated | AnabranchError


@dataclass(slots=True)
class WriterHandle:
    """A writer, as its parts refer to it. `fences` holds the fence that the writer carries per log. Resolving an
    unknown outcome raises the fence, and later commits must carry the raised fence."""

    id: WriterId
    fences: dict[LogId, int] = field(default_factory=dict)

    @property
    def highest(self) -> int:
        """The highest fence that the writer carries in any log. It is the fence for a log that the writer writes to for
        the first time."""
        return max(self.fences.values(), default=0)


@dataclass(frozen=True, slots=True)
class RoutedPart:
    """Events for one log: not yet encoded, or `prewritten`. `first` is the sequence number of the first event.
    `bounds` are computed from the events if None. `size` is in logical bytes, and is set from `batch` if negative."""

    log: LogId
    batch: pa.RecordBatch | RawEvent
    schema: StreamSchema
    schema_version: int
    writer: WriterHandle
    first: int
    expected: int | None = None
    fence: int | None = None
    bounds: TimeBounds | None = None
    size: int = -1
    prewritten: PrewrittenMessage | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            object.__setattr__(self, "size", self.batch.nbytes)

    @property
    def bytes_to_write(self) -> int:
        """The logical bytes that the commit has to encode and write; 0 for a prewritten part."""
        return self.size if self.prewritten is None else 0


@dataclass(slots=True, eq=False)
class RoutedBatch:
    """Parts that are committed together or not at all. `appends`: the tracing spans, if any, of the appends that the
    events came from. `producer`: the sequence that a producer gave the batch; its parts then have no sequences."""

    parts: tuple[RoutedPart, ...]
    appends: tuple[AppendSpan, ...] = ()
    producer: ProducerSequence | None = None

    def settle(self, outcome: Outcome) -> None:
        """Called by the appender with the outcome, perhaps twice if the commit was interrupted. Subclasses override
        it."""


@dataclass(frozen=True, slots=True)
class EncodedCommit:
    """Routed batches with their bytes. The bytes are durable in `blob`, or, if `blob` is None, to be inlined from
    `stored`. `bounds` covers all parts; the other lists cover only the parts that are not prewritten. `locations` and
    `checksums` describe the bytes as stored: the messages, or their encrypted form."""

    batches: Sequence[RoutedBatch]
    messages: list[pa.Buffer]
    bounds: list[TimeBounds]
    blob: BlobEntry | None
    stored: list[pa.Buffer] | None
    locations: list[BlobLocation]
    checksums: list[int]

    @property
    def blobs(self) -> tuple[BlobEntry, ...]:
        """All blobs that hold the parts."""
        parts = (part for batch in self.batches for part in batch.parts)
        prewritten = (part.prewritten.blob for part in parts if part.prewritten is not None)
        return (*(() if self.blob is None else (self.blob,)), *prewritten)


class Committer:
    """Commits routed batches; knows nothing of queues. Thread-safe: it has no state."""

    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime

    def prepare(self, batches: Sequence[RoutedBatch]) -> EncodedCommit:
        """Encodes the batches and, above the inline limit, writes the blob. Then they are durable, but not visible."""
        parts = [part for batch in batches for part in batch.parts]
        bounds = [part.bounds or event_bounds(part.batch, part.schema) for part in parts]
        return self._store(batches, [encode(part.batch) for part in _to_write(batches)], bounds)

    def prewrite(self, batch: pa.RecordBatch, schema: StreamSchema, writer: WriterId) -> PrewrittenMessage:
        """Makes a batch durable, but not visible, in a blob of its own, before the logs of its events are known.
        Raises what `Blobs.put` raises."""
        return self._prewrite(encode(batch), batch.num_rows, schema, writer)

    def _prewrite(
        self, message: pa.Buffer, count: int, schema: StreamSchema, writer: WriterId, *, not_before: int = 0
    ) -> PrewrittenMessage:
        index = {"schemas": [schema.columns_to_bytes().hex()]}
        part = {"writer": writer, "count": count, "schema": 0}
        return prewrite(self._blobs, self._runtime, message, index=index, part=part, not_before=not_before)

    def _store(
        self,
        batches: Sequence[RoutedBatch],
        messages: list[pa.Buffer],
        bounds: list[TimeBounds],
        *,
        not_before: int = 0,
    ) -> EncodedCommit:
        if sum(message.size for message in messages) <= self._runtime.settings.inline_bytes_max:
            stored = self._encrypted(_to_write(batches), messages)
            locations = [BlobLocation(0, each.size) for each in stored]
            checksums = [checksum(each) for each in stored]
            return EncodedCommit(batches, messages, bounds, None, stored, locations, checksums)
        return self._write(batches, messages, bounds, not_before=not_before)

    def _encrypted(self, parts: Sequence[RoutedPart], messages: list[pa.Buffer]) -> list[pa.Buffer]:
        sealer = self._runtime.sealer
        if sealer is None:
            return messages
        return [sealer.seal(message, inline_context(part.log)) for part, message in zip(parts, messages, strict=True)]

    def _write(
        self, batches: Sequence[RoutedBatch], messages: list[pa.Buffer], bounds: list[TimeBounds], *, not_before: int
    ) -> EncodedCommit:
        parts = _to_write(batches)
        begun_at = Micros(max(self._runtime.clock.now(), not_before))
        commit = token(self._runtime.ids)
        schemas = {id(part.schema): part.schema for part in parts}
        numbers = {ident: number for number, ident in enumerate(schemas)}
        described = [
            {
                "log": part.log,
                "writer": part.writer.id,
                "first": part.first,
                "count": part.batch.num_rows,
                "schema": numbers[id(part.schema)],
                "checksum": checksum(message),
            }
            for part, message in zip(parts, messages, strict=True)
        ]
        texts = [schema.columns_to_bytes().hex() for schema in schemas.values()]
        index = {"commit": commit, "begun_at": begun_at, "schemas": texts}
        key = commit_key(begun_at, commit)
        framed = frame(index, described, messages, key=key, sealer=self._runtime.sealer)
        self._blobs.put(key, framed.chunks)
        locations = [
            BlobLocation(offset, length) for offset, length in zip(framed.offsets, framed.lengths, strict=True)
        ]
        entry = BlobEntry(key, framed.size, begun_at)
        return EncodedCommit(batches, messages, bounds, entry, None, locations, framed.checksums)

    def commit(self, encoded: EncodedCommit, *, repeated: bool = False) -> list[Outcome]:
        """Has the catalog append what was prepared; returns one outcome per batch. `repeated`: an earlier call for the
        same commit was interrupted, so the catalog may have decided. Raises nothing: an error is an outcome."""
        try:
            if repeated:
                interrupted = AppendUncertain("the commit was interrupted")
                outcomes = self._resolve(encoded, _units(encoded), interrupted)
            else:
                outcomes = self._commit_once(encoded)
        except AnabranchError as exc:
            return [exc] * len(encoded.batches)
        for _ in range(_REWRITE_TRIES - 1):
            horizon = max(map(_horizon, outcomes))
            if not horizon:
                break
            try:
                # The writer was stalled past the collector's horizon, and the blob may be gone: write it again, with a
                # time not before the horizon, since this clock may be behind the clock that set it.
                batches = [self._prewrite_again(batch, not_before=horizon) for batch in encoded.batches]
                encoded = self._store(batches, encoded.messages, encoded.bounds, not_before=horizon)
                again = self._commit_once(encoded)
                # For a batch that landed the first time, the second outcome is only that it is a duplicate.
                outcomes = [old if _has_landed(old) else new for old, new in zip(outcomes, again, strict=True)]
            except AnabranchError as exc:
                # The other batches of the commit have been decided. If they were reported as failed, their sequence
                # numbers would be given out again, and the next events with these numbers would count as duplicates.
                return [exc if _horizon(outcome) else outcome for outcome in outcomes]
        return outcomes

    def _prewrite_again(self, batch: RoutedBatch, *, not_before: int) -> RoutedBatch:
        """The same parts, with their prewritten messages written again."""
        parts = []
        for part in batch.parts:
            if part.prewritten is not None:
                message, count, writer = part.prewritten.message, part.batch.num_rows, part.writer.id
                fresh = self._prewrite(message, count, part.schema, writer, not_before=not_before)
                part = replace(part, prewritten=fresh)
            parts.append(part)
        return RoutedBatch(tuple(parts), producer=batch.producer)

    def _commit_once(self, encoded: EncodedCommit) -> list[Outcome]:
        units = _units(encoded)
        try:
            verdicts = self._catalog.commit(Commit(units, self._runtime.clock.now(), encoded.blobs))
        except AppendUncertain as exc:
            return self._resolve(encoded, units, exc)
        return [self._answered(*each, resolved=False) for each in zip(encoded.batches, verdicts, strict=True)]

    def _answered(self, batch: RoutedBatch, verdicts: tuple[Verdict, ...], *, resolved: bool) -> Outcome:
        """The outcome of a batch with these verdicts. A batch that its producer repeated gets the answer to its first
        append."""
        carried = batch.producer
        if carried is None or not isinstance(verdicts[0], Refused):
            return verdicts
        if resolved and verdicts[0].reason is Refusal.FENCED:
            # The new owner's answers may have displaced the answer to the lost commit.
            return AppendUncertain(
                f"whether append {carried.first} of producer '{carried.producer}' took place can't be found out: "
                "another process has taken over the producer since"
            )
        if verdicts[0].reason is not Refusal.REPEATED:
            return verdicts
        return Repeated(self._first_answer(carried), resolved)

    def _first_answer(self, carried: ProducerSequence) -> tuple[PlacedEvents, ...] | None:
        try:
            with self._catalog.reading() as txn:
                producer = txn.producer(carried.stream, carried.producer)
        except AnabranchError:
            return None  # only the answer is unknown: the batch was appended before
        answer = None if producer is None else producer.answers.find(carried.epoch, carried.first, carried.last)
        return None if answer is None else answer.events

    def _resolve(self, encoded: EncodedCommit, units: Sequence[Unit], uncertain: AppendUncertain) -> list[Outcome]:
        """Finds out, under each log's lock, how far the writer got; raises its fence so that the lost commit can never
        land later; and commits again what had not landed."""
        APPEND_UNCERTAIN(units=len(units), error=uncertain)
        policy = replace(_RESOLVE, deadline_s=self._runtime.settings.catalog_lock_s)
        try:
            return policy.call(self._runtime, lambda: self._commit_missing(encoded, units))
        except AnabranchError as exc:
            APPEND_UNRESOLVED(units=len(units), error=exc)
        return [AppendUncertain(f"whether the append took place can't be found out: {uncertain}") for _ in units]

    def _commit_missing(self, encoded: EncodedCommit, units: Sequence[Unit]) -> list[Outcome]:
        landed = [self._landed(batch, unit) for batch, unit in zip(encoded.batches, units, strict=True)]
        missing = [i for i, verdicts in enumerate(landed) if verdicts is None]
        repeated = _units(encoded)
        commit = Commit(tuple(repeated[i] for i in missing), self._runtime.clock.now(), encoded.blobs)
        verdicts = iter(self._catalog.commit(commit) if missing else ())
        APPEND_RECOVERED(landed=len(units) - len(missing), repeated=len(missing))
        return [
            self._answered(batch, next(verdicts), resolved=True) if found is None else found
            for batch, found in zip(encoded.batches, landed, strict=True)
        ]

    def _landed(self, batch: RoutedBatch, unit: Unit) -> tuple[Verdict, ...] | None:
        """The verdicts on the parts if the lost commit appended them, else None. If it did not, it never will: the
        fences are raised. Also None if a producer has numbered the batch: the catalog then refuses a repetition by
        itself, so the batch can be committed again."""
        if unit.producer is not None:
            return None
        verdicts: list[Verdict] = []
        with self._catalog.writing() as txn:
            for routed, part in zip(batch.parts, unit.parts, strict=True):
                assert part.sequence is not None
                progress = txn.progress(part.log, routed.writer.id) or Progress()
                # The writer's own fences since the part was encoded: nobody else has raised the fence in between.
                own = range(part.sequence.fence, routed.writer.fences.get(part.log, 0) + 1)
                wanted = (part.sequence.first, part.count)
                verdicts += [
                    Appended(recent.start, Micros(recent.appended_at), duplicate=True)
                    for recent in progress.recent
                    if (recent.first, recent.events) == wanted and recent.fence in own
                ]
            if len(verdicts) == len(unit.parts):
                return tuple(verdicts)
            for routed in batch.parts:
                _raise_fence(txn, routed, now=self._runtime.clock.now())
        return None


def _raise_fence(txn: Writing, part: RoutedPart, *, now: Micros) -> None:
    if part.log not in txn.logs([part.log]):
        return  # the stream was deleted: the lost commit has nowhere to land
    progress = txn.progress(part.log, part.writer.id) or Progress()
    carried = part.writer.fences.get(part.log, 0)
    if progress.fence > carried:
        return  # another process took over the name: the commit can't land any more, and the name must not be taken back
    carried += 1
    txn.put_progress(part.log, part.writer.id, replace(progress, fence=carried), now=now)
    part.writer.fences[part.log] = carried


def _to_write(batches: Sequence[RoutedBatch]) -> list[RoutedPart]:
    """The parts whose bytes are not stored yet: all that are not prewritten."""
    return [part for batch in batches for part in batch.parts if part.prewritten is None]


def _units(encoded: EncodedCommit) -> tuple[Unit, ...]:
    units = []
    bounds, stored = iter(encoded.bounds), _stored(encoded)
    for batch in encoded.batches:
        parts = []
        for part in batch.parts:
            location, digest, blob, data = next(stored) if part.prewritten is None else _prewritten(part.prewritten)
            sequence = None
            if batch.producer is None:
                sequence = WriterSequence(part.writer.id, part.first, part.writer.fences.get(part.log, 0))
            parts.append(
                Part(
                    log=part.log,
                    count=part.batch.num_rows,
                    schema=part.schema_version,
                    location=location,
                    checksum=digest,
                    size=part.size,
                    bounds=next(bounds),
                    sequence=sequence,
                    expected=part.expected,
                    fence=part.fence,
                    blob=blob,
                    data=data,
                )
            )
        units.append(Unit(tuple(parts), producer=batch.producer))
    return tuple(units)


def _stored(encoded: EncodedCommit) -> Iterator[tuple[BlobLocation, int, str | None, bytes | None]]:
    """For each part that is not prewritten: location, checksum, and either the blob's key or the bytes to be
    inlined."""
    key = None if encoded.blob is None else encoded.blob.key
    for i, (location, digest) in enumerate(zip(encoded.locations, encoded.checksums, strict=True)):
        yield location, digest, key, None if encoded.stored is None else encoded.stored[i].to_pybytes()


def _prewritten(message: PrewrittenMessage) -> tuple[BlobLocation, int, str | None, bytes | None]:
    return message.location, message.checksum, message.blob.key, None


def _has_landed(outcome: Outcome) -> bool:
    if isinstance(outcome, tuple):
        return all(isinstance(verdict, Appended) for verdict in outcome)
    return isinstance(outcome, Repeated)


def _horizon(outcome: Outcome) -> int:
    """The collector's horizon if a part was refused because its blob was begun before it, else 0."""
    if not isinstance(outcome, tuple):
        return 0
    expired = (v.actual for v in outcome if isinstance(v, Refused) and v.reason is Refusal.EXPIRED)
    return max(expired, default=0)
