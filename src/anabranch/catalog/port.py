"""The catalog port: what every adapter (SQLite, PostgreSQL) offers, and all that the store knows of its database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from anabranch.catalog.tables import Value
from anabranch.model.append import BlobEntry, Commit, LogState, Progress, Unit, Verdict
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo, StreamView


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """A stream, and a log of it whose last extent is going to be looked at, and then followed by what a writer appends."""

    stream: StreamId
    log: LogId
    writer: WriterId


# What a transaction is about; see `Catalog.writing`.
Subject: TypeAlias = StreamName | StreamId | StreamEnd | str


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A blob as the catalog lists it. `dead_at`: when a collector found that no extent lies in it, or None."""

    id: BlobId
    key: str
    size: int
    encoding: str
    begun_at: Micros
    dead_at: Micros | None


@dataclass(frozen=True, slots=True)
class Lease:
    """Holds the collector's horizon at or before `begun_at` until `expires_at`."""

    id: str
    kind: str
    holder: str
    begun_at: Micros
    expires_at: Micros


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the change outbox. `sequence` rises in commit order; `detail` is JSON-able."""

    sequence: int
    stream: StreamId | None
    at: Micros
    kind: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A named piece of state that belongs to a user of the store (a pipeline's row, say): JSON-able."""

    kind: str
    name: str
    value: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Alias:
    """A further name, and the stream that it leads to, which is called `leads_to`."""

    name: StreamName
    stream: StreamId
    leads_to: StreamName


class Reading(Protocol):
    """One consistent snapshot. Short: it must not outlive a plan."""

    # scopes and streams
    def scopes(self) -> list[Scope]:
        """All scopes by name."""
        ...

    def scope(self, name: str) -> Scope | None:
        """One scope."""
        ...

    def streams(
        self, scope: str | None = None, *, after: StreamName | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams by name, of one scope or of all; `after` excludes everything up to that name."""
        ...

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        """One stream by name or id. Where no stream has the name, a piece of the kind `alias` called so leads to one: its
        member `stream` is the id, as a number."""
        ...

    def aliases(
        self, scope: str | None = None, *, after: StreamName | None = None, limit: int | None = None
    ) -> list[Alias]:
        """Aliases in the order of their texts, those in one scope or all; `after` excludes everything up to that name."""
        ...

    def schema(self, stream: StreamId, version: int) -> StreamSchema:
        """A former or present schema of the stream. Raises CorruptCatalog where there is none."""
        ...

    def view(self, stream: StreamId) -> StreamView | None:
        """The stream with its segments, spans and logs."""
        ...

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        """The views of those streams that exist, for the price of a few."""
        ...

    # logs
    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        """The states of those logs that exist."""
        ...

    def logs_after(self, after: LogId, limit: int) -> list[LogState]:
        """A page of all logs in id order."""
        ...

    def spans_of_log(self, log: LogId) -> list[tuple[StreamId, Span]]:
        """All spans that view a log, in order of their start."""
        ...

    def fragmented(self, spans_min: int, limit: int) -> list[tuple[StreamId, SegmentId]]:
        """Segments of at least `spans_min` spans, those with most first, then by stream and segment. Looks at all spans."""
        ...

    def extents(self, log: LogId, start: int, stop: int, limit: int) -> list[Extent]:
        """The first `limit` extents of the log that intersect `start <= position < stop`, in order."""
        ...

    def extents_of_segment(
        self, stream: StreamId, segment: SegmentId, start: int, stop: int, limit: int
    ) -> list[tuple[int, Extent]]:
        """The first `limit` extents that hold offsets `start <= offset < stop` of a segment, span by span, each with the
        offset at which its span begins; for the price of few, however many spans there are."""
        ...

    def extent_before(self, log: LogId, stop: int) -> Extent | None:
        """The last extent of the log that begins before `stop`."""
        ...

    def extent_at_time(self, log: LogId, start: int, time: Micros, *, by_event_time: bool) -> Extent | None:
        """The first extent that ends after `start` and holds an event at or after `time`, or None. By append time the
        answer may begin earlier events too; the caller looks inside."""
        ...

    def progress(self, log: LogId, writer: WriterId) -> Progress | None:
        """What the log remembers of a writer."""
        ...

    def writers_of_log(self, log: LogId, after: WriterId, limit: int) -> list[tuple[WriterId, Progress]]:
        """A page of the writers that a log remembers, in id order."""
        ...

    # blobs, leases, requests, changes, pieces
    def blobs_after(self, after: BlobId, limit: int) -> list[BlobRow]:
        """A page of all blobs in id order."""
        ...

    def blob_keys(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys the catalog lists."""
        ...

    def blob_in_use(self, blob: BlobId) -> bool:
        """True if an extent lies in the blob."""
        ...

    def extents_of_blob(self, blob: BlobId) -> list[Extent]:
        """The extents that lie in a blob, by log and start."""
        ...

    def horizon(self) -> Micros:
        """Blobs begun before this may have been collected."""
        ...

    def leases(self) -> list[Lease]:
        """All leases, expired ones too."""
        ...

    def request(self, request: str) -> tuple[str, str] | None:
        """The operation and the JSON result recorded under a request id."""
        ...

    def changes(self, after: int, limit: int) -> list[Change]:
        """The next rows of the change outbox."""
        ...

    def pieces(self, kind: str, limit: int | None = None) -> list[Checkpointed]:
        """The named pieces of a kind, by name: all, or the first `limit`."""
        ...

    def piece(self, kind: str, name: str) -> Checkpointed | None:
        """One named piece."""
        ...

    # whole tables, for manifests

    def export(self, table: str, after: Sequence[Value] | None = None) -> list[tuple[Value, ...]]:
        """A page of a table's rows in the order of its key, from behind the key `after` on; empty at the end. Tables,
        columns and page sizes are those of `catalog.tables`."""
        ...

    def verify_database(self) -> list[str]:
        """What the database itself says of its integrity; empty when sound."""
        ...


class Writing(Reading, Protocol):
    """A transaction that holds the locks it needs from its start. Leaving its context commits; an exception undoes."""

    def ahead(
        self,
        *,
        scopes: Sequence[str] = (),
        streams: Sequence[StreamName | StreamId] = (),
        pieces: Sequence[tuple[str, str]] = (),
        logs_of: Sequence[StreamId] = (),
    ) -> None:
        """Say what is going to be looked at, and that as many logs are going to be made as those streams have open segments.
        Where each question is a round trip, all are asked with the next one. Nothing else differs."""
        ...

    def put_scope(self, scope: Scope) -> None:
        """Insert or replace a scope."""
        ...

    def drop_scope(self, name: str) -> None:
        """Remove an empty scope."""
        ...

    def insert_stream(self, info: StreamInfo) -> None:
        """Insert a stream and its first schema. Raises StreamExists."""
        ...

    def update_stream(self, info: StreamInfo) -> None:
        """Replace everything but id and creation time; a new `schema_version` stores its schema too. The caller
        raises `version`."""
        ...

    def drop_stream(self, stream: StreamId) -> None:
        """Remove the stream, its segments, spans and schemas. Logs stay until collected."""
        ...

    def put_segment(self, stream: StreamId, segment: Segment) -> None:
        """Insert or replace a segment."""
        ...

    def put_span(self, stream: StreamId, span: Span) -> None:
        """Insert or replace the span that begins at `span.offset` of its segment."""
        ...

    def drop_spans(self, stream: StreamId, segment: SegmentId) -> None:
        """Remove all spans of a segment."""
        ...

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        """A new empty open log; its append times start at `appended_at`. `stream` owns its schema versions."""
        ...

    def update_log(self, log: LogState) -> None:
        """Replace a log's state."""
        ...

    def drop_log(self, log: LogId) -> None:
        """Remove a log, its extents and the progress of its writers."""
        ...

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        """One atomic unit inside this transaction; see `Catalog.commit`. Verdicts are decided on what the transaction
        has changed so far."""
        ...

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        """Replace what the log remembers of a writer."""
        ...

    def inherit_fences(self, log: LogId, heir: LogId) -> None:
        """Let every fence that a writer raised on `log` hold on `heir` too, where it is not higher already: who was
        taken over on a segment can't append to its successors."""
        ...

    def drop_progress_before(self, time: Micros, limit: int) -> int:
        """Forget writers not seen since `time`; returns how many."""
        ...

    def insert_blob(self, key: str, size: int, begun_at: Micros, encoding: str) -> BlobId:
        """List a durable blob; one that is listed already keeps its id."""
        ...

    def swap_extents(self, log: LogId, old: Sequence[Extent], new: Sequence[Extent]) -> bool:
        """Replace `old` by `new`, which cover the same positions. False, and nothing done, if `old` is not exactly
        what the log holds there now."""
        ...

    def extend_log(self, log: LogId, extents: Sequence[Extent]) -> None:
        """Put extents behind the end of an unsealed log, and move its length, size, append time and greatest event time
        with them. For events that were appended elsewhere before: their times, checksums and schema versions stay.

        The first extent begins at the log's length, each other one where the one before ends; append times and running
        sizes never fall. Their blobs are listed (`insert_blob`). Raises BlobExpired, as commits do, where one was begun
        before the horizon: the collector may have removed it. A lease from before its writing on prevents that.
        """
        ...

    def drop_extents(self, log: LogId, stop: int | None = None, *, start: int = 0) -> int:
        """Remove the extents that lie wholly in `start <= position < stop` (None: all from start); returns how many."""
        ...

    def set_blob_dead(self, blob: BlobId, dead_at: Micros | None) -> None:
        """Mark or unmark a blob as referenced by nothing."""
        ...

    def drop_blobs(self, blobs: Iterable[BlobId]) -> None:
        """Forget blobs that no extent lies in."""
        ...

    def set_horizon(self, horizon: Micros) -> None:
        """Advance the horizon. It never goes back."""
        ...

    def put_lease(self, lease: Lease) -> None:
        """Insert or renew a lease."""
        ...

    def drop_lease(self, lease: str) -> None:
        """Give a lease back. Unknown ids are ignored."""
        ...

    def record_request(self, request: str, operation: str, result: str, *, now: Micros) -> None:
        """Remember the JSON result of an operation under its request id."""
        ...

    def drop_requests_before(self, time: Micros, limit: int) -> int:
        """Forget old requests; returns how many."""
        ...

    def add_change(self, stream: StreamId | None, kind: str, detail: Mapping[str, object], *, now: Micros) -> None:
        """Write a row to the change outbox."""
        ...

    def drop_changes_before(self, time: Micros, limit: int) -> int:
        """Forget old rows of the change outbox; returns how many."""
        ...

    def put_piece(self, piece: Checkpointed) -> None:
        """Insert or replace a named piece."""
        ...

    def drop_piece(self, kind: str, name: str) -> None:
        """Remove a named piece."""
        ...

    # whole tables, for manifests

    def wipe(self) -> None:
        """Remove every row of every table of `catalog.tables`. Nobody commits beside it. The horizon stays."""
        ...

    def load(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        """Insert rows as `export` gave them, without the derived columns, into a table that lacks them. Tables come in
        the order of `catalog.tables`."""
        ...

    def skip_ids(self, count: int) -> None:
        """Let the next ids of logs, blobs and changes be greater than `count` plus all that were ever given here or
        are in the tables now."""
        ...


class Catalog(Protocol):
    """A catalog that may be used by many threads of many processes at once."""

    def reading(self) -> AbstractContextManager[Reading]:
        """A snapshot for one plan."""
        ...

    def writing(self, on: Subject | None = None) -> AbstractContextManager[Writing]:
        """A transaction; durable when its context is left without an exception.

        Transactions take turns. One that says what it is `on` may run beside those on something else: it sees and
        changes no stream, segment, span or log but that stream's, and beside them a scope that it reads, requests,
        leases, single pieces, blobs that it appends, and with `append` the ends of logs of which it reads nothing. A text
        names what is no stream, such as a piece.
        """
        ...

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        """Append units: for each, a verdict per part, in order.

        Locks the logs in ascending id, then decides for each part, in this order: duplicate, fence, seal, gap,
        condition. Parts of one unit stand or fall together; units are independent. Durable when it returns. Raises
        AppendUncertain where the outcome is unknown; after any other error nothing was appended.
        """
        ...

    def token(self) -> int:
        """A number that differs whenever something may have changed since the last call, by any process. Cheap. What
        this object committed it tells at once; what others did, soon: at most `limits.LISTEN_POLL_US` later."""
        ...

    def close(self) -> None:
        """Release the database. A second close is harmless."""
        ...
