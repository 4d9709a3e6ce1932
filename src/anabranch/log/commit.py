"""One commit: encode what was gathered, make it durable, have the catalog decide, and find out what an unknown
outcome was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from anabranch.blobs.keys import commit_key
from anabranch.blobs.layout import frame
from anabranch.blobs.port import Blobs
from anabranch.blobs.sealed import inlined_place
from anabranch.catalog.port import Catalog, Writing
from anabranch.core.checksum import checksum
from anabranch.core.codec import encode, event_bounds
from anabranch.core.raw_event import RawEvent
from anabranch.errors import AnabranchError, AppendUncertain
from anabranch.log.ahead import Ahead, put_ahead
from anabranch.model.append import (
    Appended,
    BlobEntry,
    Bounds,
    Commit,
    Part,
    Place,
    Progress,
    Refusal,
    Refused,
    Unit,
    Verdict,
)
from anabranch.model.append import (
    Sequence as WriterSequence,
)
from anabranch.model.ids import LogId, Micros, WriterId
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

_RESOLVE_TRIES = 5
_RESOLVE_PAUSE_S = 0.05
_REWRITE_TRIES = 3

Outcome = tuple[Verdict, ...] | AnabranchError


@dataclass(slots=True)
class WriterName:
    """A writer as its drafts refer to it. `fences` holds the fence it carries per log: resolving an unknown outcome
    raises it, and what is committed later must carry the new one."""

    id: WriterId
    fences: dict[LogId, int] = field(default_factory=dict)

    @property
    def highest(self) -> int:
        """The highest fence it ever carried: the one to carry where it comes for the first time."""
        return max(self.fences.values(), default=0)


@dataclass(frozen=True, slots=True)
class Draft:
    """Events for one log, not yet encoded, or durable `ahead` of the commit. `first` is the sequence number of the first
    one. `bounds`, and `size` in logical bytes, may be given by who knows them already."""

    log: LogId
    batch: pa.RecordBatch | RawEvent
    schema: StreamSchema
    schema_version: int
    writer: WriterName
    first: int
    expected: int | None = None
    fence: int | None = None
    bounds: Bounds | None = None
    size: int = -1
    ahead: Ahead | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            object.__setattr__(self, "size", self.batch.nbytes)

    @property
    def load(self) -> int:
        """The bytes that its commit has to encode and write for it."""
        return self.size if self.ahead is None else 0


@dataclass(frozen=True, slots=True)
class Work:
    """Drafts that stand or fall together, and who wants to know what became of them."""

    drafts: tuple[Draft, ...]
    settle: Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Works with their bytes: durable in `blob`, or to be inlined where it is None. `bounds` are those of all drafts; the
    other lists tell of those that are not durable `ahead`. `places` and `checksums` are those of what is stored: of the
    messages, or of the boxes in which they are sealed."""

    works: Sequence[Work]
    messages: list[pa.Buffer]
    bounds: list[Bounds]
    blob: BlobEntry | None
    stored: list[pa.Buffer] | None  # to be inlined
    places: list[Place]
    checksums: list[int]

    @property
    def blobs(self) -> tuple[BlobEntry, ...]:
        """All blobs that the parts lie in."""
        ahead = (draft.ahead.blob for work in self.works for draft in work.drafts if draft.ahead is not None)
        return (*(() if self.blob is None else (self.blob,)), *ahead)


class Committer:
    """Commits works; knows nothing of queues. Thread-safe: it has no state."""

    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime

    def prepare(self, works: Sequence[Work]) -> Encoded:
        """Encode and, above the inline limit, write the blob. Durable when it returns, and visible to nobody."""
        drafts = [draft for work in works for draft in work.drafts]
        bounds = [draft.bounds or event_bounds(draft.batch, draft.schema) for draft in drafts]
        fresh = _fresh(works)
        return self._lay_down(works, [encode(draft.batch) for draft in fresh], bounds)

    def ahead(self, batch: pa.RecordBatch, schema: StreamSchema, writer: WriterId) -> Ahead:
        """Make a batch durable in a blob of its own, before it is known where its events belong; it is visible to nobody.
        Raises what `Blobs.put` raises."""
        return self._ahead(encode(batch), batch.num_rows, schema, writer)

    def _ahead(
        self, message: pa.Buffer, count: int, schema: StreamSchema, writer: WriterId, *, not_before: int = 0
    ) -> Ahead:
        index = {"schemas": [schema.to_bytes().hex()]}
        part = {"writer": writer, "count": count, "schema": 0}
        return put_ahead(self._blobs, self._runtime, message, index=index, part=part, not_before=not_before)

    def _lay_down(
        self, works: Sequence[Work], messages: list[pa.Buffer], bounds: list[Bounds], *, not_before: int = 0
    ) -> Encoded:
        if sum(message.size for message in messages) <= self._runtime.settings.inline_bytes_max:
            drafts = _fresh(works)
            stored = self._sealed(drafts, messages)
            places = [Place(0, each.size) for each in stored]
            return Encoded(works, messages, bounds, None, stored, places, [checksum(each) for each in stored])
        return self._write(works, messages, bounds, not_before=not_before)

    def _sealed(self, drafts: Sequence[Draft], messages: list[pa.Buffer]) -> list[pa.Buffer]:
        sealer = self._runtime.sealer
        if sealer is None:
            return messages
        return [sealer.seal(message, inlined_place(draft.log)) for draft, message in zip(drafts, messages, strict=True)]

    def _write(
        self, works: Sequence[Work], messages: list[pa.Buffer], bounds: list[Bounds], *, not_before: int
    ) -> Encoded:
        drafts = _fresh(works)
        begun_at = Micros(max(self._runtime.clock.now(), not_before))
        commit = token(self._runtime.ids)
        schemas = {id(draft.schema): draft.schema for draft in drafts}
        numbers = {ident: number for number, ident in enumerate(schemas)}
        parts = [
            {
                "log": draft.log,
                "writer": draft.writer.id,
                "first": draft.first,
                "count": draft.batch.num_rows,
                "schema": numbers[id(draft.schema)],
                "checksum": checksum(message),
            }
            for draft, message in zip(drafts, messages, strict=True)
        ]
        texts = [schema.to_bytes().hex() for schema in schemas.values()]
        index = {"commit": commit, "begun_at": begun_at, "schemas": texts}
        key = commit_key(begun_at, commit)
        framed = frame(index, parts, messages, key=key, sealer=self._runtime.sealer)
        self._blobs.put(key, framed.chunks)
        places = [Place(offset, length) for offset, length in zip(framed.offsets, framed.lengths, strict=True)]
        entry = BlobEntry(key, framed.size, begun_at)
        return Encoded(works, messages, bounds, entry, None, places, framed.checksums)

    def commit(self, encoded: Encoded) -> list[Outcome]:
        """Have the catalog append what was prepared: one outcome per work. Raises nothing: an error is an outcome."""
        try:
            outcomes = self._commit_once(encoded)
        except AnabranchError as exc:
            return [exc] * len(encoded.works)
        for _ in range(_REWRITE_TRIES - 1):
            horizon = max(map(_horizon, outcomes))
            if not horizon:
                break
            try:
                # The writer was stalled behind the collector's horizon: the blob may be gone, so write it again. Not
                # before the horizon: this clock may be late, and the horizon that of another clock.
                works = [self._anew(work, not_before=horizon) for work in encoded.works]
                encoded = self._lay_down(works, encoded.messages, encoded.bounds, not_before=horizon)
                outcomes = self._commit_once(encoded)
            except AnabranchError as exc:
                # What else was in the commit has been decided. To call that a failure would have its numbers given again, and
                # the next events under them taken for a repetition.
                return [exc if _horizon(outcome) else outcome for outcome in outcomes]
        return outcomes

    def _anew(self, work: Work, *, not_before: int) -> Work:
        """The same work, with what it has ahead written again."""
        drafts = []
        for draft in work.drafts:
            if draft.ahead is not None:
                message, count, writer = draft.ahead.message, draft.batch.num_rows, draft.writer.id
                ahead = self._ahead(message, count, draft.schema, writer, not_before=not_before)
                draft = replace(draft, ahead=ahead)
            drafts.append(draft)
        return replace(work, drafts=tuple(drafts))

    def _commit_once(self, encoded: Encoded) -> list[Outcome]:
        units = _units(encoded)
        try:
            return list(self._catalog.commit(Commit(units, self._runtime.clock.now(), encoded.blobs)))
        except AppendUncertain as exc:
            return self._resolve(encoded, units, exc)

    def _resolve(self, encoded: Encoded, units: Sequence[Unit], uncertain: AppendUncertain) -> list[Outcome]:
        """Ask under each log's lock how far the writer got, raise its fence so that the lost commit can never land
        afterwards, and commit again what had not."""
        for attempt in range(_RESOLVE_TRIES):
            try:
                landed = [self._landed(work, unit) for work, unit in zip(encoded.works, units, strict=True)]
                missing = [i for i, verdicts in enumerate(landed) if verdicts is None]
                again = _units(encoded)
                commit = Commit(tuple(again[i] for i in missing), self._runtime.clock.now(), encoded.blobs)
                verdicts = iter(self._catalog.commit(commit) if missing else ())
                return [next(verdicts) if found is None else found for found in landed]
            except AnabranchError:
                self._runtime.tasks.sleep(_RESOLVE_PAUSE_S * 2**attempt)
        return [AppendUncertain(f"whether the append took place can't be found out: {uncertain}") for _ in units]

    def _landed(self, work: Work, unit: Unit) -> tuple[Verdict, ...] | None:
        verdicts: list[Verdict] = []
        with self._catalog.writing() as txn:
            for draft, part in zip(work.drafts, unit.parts, strict=True):
                assert part.sequence is not None
                progress = txn.progress(draft.log, draft.writer.id) or Progress()
                # Its own fences since it was encoded: none but this writer has raised it in between.
                own = range(part.sequence.fence, draft.writer.fences.get(draft.log, 0) + 1)
                wanted = (part.sequence.first, part.count)
                verdicts += [
                    Appended(batch.start, Micros(batch.appended_at), duplicate=True)
                    for batch in progress.recent
                    if (batch.first, batch.events) == wanted and batch.fence in own
                ]
            if len(verdicts) == len(unit.parts):
                return tuple(verdicts)
            for draft in work.drafts:
                _raise_fence(txn, draft, now=self._runtime.clock.now())
        return None


def _raise_fence(txn: Writing, draft: Draft, *, now: Micros) -> None:
    if draft.log not in txn.logs([draft.log]):
        return  # the stream was deleted: the lost commit has nowhere to land
    progress = txn.progress(draft.log, draft.writer.id) or Progress()
    carried = draft.writer.fences.get(draft.log, 0)
    if progress.fence > carried:
        return  # another took over: it can't land any more, and the name is not ours to take back
    carried += 1
    txn.put_progress(draft.log, draft.writer.id, replace(progress, fence=carried), now=now)
    draft.writer.fences[draft.log] = carried


def _fresh(works: Sequence[Work]) -> list[Draft]:
    """The drafts whose bytes are still to be stored."""
    return [draft for work in works for draft in work.drafts if draft.ahead is None]


def _units(encoded: Encoded) -> tuple[Unit, ...]:
    units = []
    bounds, stored = iter(encoded.bounds), _stored(encoded)
    for work in encoded.works:
        parts = []
        for draft in work.drafts:
            place, digest, blob, data = next(stored) if draft.ahead is None else _stored_ahead(draft.ahead)
            sequence = WriterSequence(draft.writer.id, draft.first, draft.writer.fences.get(draft.log, 0))
            parts.append(
                Part(
                    log=draft.log,
                    count=draft.batch.num_rows,
                    schema=draft.schema_version,
                    place=place,
                    checksum=digest,
                    size=draft.size,
                    bounds=next(bounds),
                    sequence=sequence,
                    expected=draft.expected,
                    fence=draft.fence,
                    blob=blob,
                    data=data,
                )
            )
        units.append(Unit(tuple(parts)))
    return tuple(units)


def _stored(encoded: Encoded) -> Iterator[tuple[Place, int, str | None, bytes | None]]:
    """Where the bytes of the fresh drafts lie: place, checksum, and either the blob's key or the bytes themselves."""
    key = None if encoded.blob is None else encoded.blob.key
    for i, (place, digest) in enumerate(zip(encoded.places, encoded.checksums, strict=True)):
        yield place, digest, key, None if encoded.stored is None else encoded.stored[i].to_pybytes()


def _stored_ahead(ahead: Ahead) -> tuple[Place, int, str | None, bytes | None]:
    return ahead.place, ahead.checksum, ahead.blob.key, None


def _horizon(outcome: Outcome) -> int:
    """The collector's horizon where a part's blob was begun before it, else 0."""
    if not isinstance(outcome, tuple):
        return 0
    expired = (v.actual for v in outcome if isinstance(v, Refused) and v.reason is Refusal.EXPIRED)
    return max(expired, default=0)
