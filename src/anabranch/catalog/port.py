"""The catalog port: the interface of all adapters (SQLite, PostgreSQL). The store uses its database only through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from anabranch.catalog.state.kind import State, StateKind
from anabranch.catalog.tables import Value
from anabranch.errors import CorruptCatalog
from anabranch.model.append import BlobEntry, Commit, LogState, Progress, Unit, Verdict
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.producer import ProducerState
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo, StreamView
from anabranch.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class StreamTail:
    """The subject of a transaction that reads the last extent of a stream's log and then appends to it as `writer`."""

    stream: StreamId
    log: LogId
    writer: WriterId


K = TypeVar("K")
V = TypeVar("V")

# What a transaction reads and changes; see `Catalog.writing`.
Subject: TypeAlias = StreamName | StreamId | StreamTail | str


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A blob as the catalog lists it. `dead_at`: when a collector found that no extent refers to it, or None."""

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
class Alias:
    """An additional name of a stream, with the stream's id and its own name."""

    name: StreamName
    stream: StreamId
    stream_name: StreamName


class Reading(Protocol):
    """One consistent snapshot. Keep it short: one plan at most.

    Every method that decodes rows first compares them with their digests. It raises CorruptCatalog, which names the
    row, if one does not match.
    """

    # scopes and streams
    def scopes(self) -> list[Scope]:
        """All scopes, ordered by name."""

    def scope(self, name: str) -> Scope | None:
        """One scope, or None if it does not exist."""

    def streams(
        self, scope: str | None = None, *, after: StreamName | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Streams ordered by name, of one scope or of all; `after` excludes that name and all before it."""

    def stream(self, stream: StreamName | StreamId) -> StreamInfo | None:
        """One stream by its name, an alias or its id, or None."""

    def aliases(
        self, scope: str | None = None, *, after: StreamName | None = None, limit: int | None = None
    ) -> list[Alias]:
        """Aliases ordered by their text, of one scope or of all; `after` excludes that name and all before it."""

    def aliases_of(self, stream: StreamId) -> tuple[StreamName, ...]:
        """The aliases of one stream, ordered by their text."""

    def schema(self, stream: StreamId, version: int) -> StreamSchema:
        """A schema version of the stream. Raises CorruptCatalog if it is missing."""

    def view(self, stream: StreamId) -> StreamView | None:
        """The stream with its segments, spans and logs, or None. Raises CorruptCatalog if any of these rows is
        missing."""

    def inspect(self, stream: StreamId) -> tuple[StreamView | None, list[str]]:
        """The view for checks: missing rows, for which `view` raises, are returned as sentences instead."""

    def views(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamView]:
        """The views of those streams that exist, in a fixed number of statements."""

    # logs
    def logs(self, ids: Sequence[LogId]) -> dict[LogId, LogState]:
        """The states of those logs that exist."""

    def logs_after(self, after: LogId, limit: int) -> list[LogState]:
        """A page of all logs in id order."""

    def log_ids_after(self, after: LogId, limit: int) -> list[LogId]:
        """The ids of the same page, including those of damaged rows."""

    def stream_ids_after(self, after: StreamId, limit: int) -> list[StreamId]:
        """A page of the ids of all streams in order, including those of damaged rows."""

    def blob_ids_after(self, after: BlobId, limit: int) -> list[BlobId]:
        """A page of the ids of all blobs in order, including those of damaged rows."""

    def damaged_log(self, log: LogId) -> LogState | None:
        """The state in a log's damaged row, unverified, for a repair that can check its correction with `matches_log`.
        None if the row is sound or missing, or has values of the wrong types."""

    def matches_log(self, state: LogState) -> bool:
        """True if `state` matches the digest in the log's row: then `state` is what was written."""

    def spans_of_log(self, log: LogId) -> list[tuple[StreamId, Span]]:
        """All spans that view a log, ordered by start."""

    def fragmented(self, spans_min: int, limit: int) -> list[tuple[StreamId, SegmentId]]:
        """Segments of at least `spans_min` spans, by descending number, then by stream and segment. Reads all spans."""

    def extents(self, log: LogId, start: int, stop: int, limit: int) -> list[Extent]:
        """The first `limit` extents of the log that intersect `start <= position < stop`, in order."""

    def extents_of_segment(
        self, stream: StreamId, segment: SegmentId, start: int, stop: int, limit: int
    ) -> list[tuple[int, Extent]]:
        """The first `limit` extents that hold offsets `start <= offset < stop` of a segment, span by span, each with
        the offset at which its span begins. One statement, however many spans there are."""

    def extent_before(self, log: LogId, stop: int) -> Extent | None:
        """The last extent of the log that begins before `stop`."""

    def extent_at_time(self, log: LogId, start: int, time: Micros, *, by_event_time: bool) -> Extent | None:
        """The first extent that ends after `start` and holds an event at or after `time`, or None. By append time, it
        may begin with earlier events: the caller searches inside it."""

    def progress(self, log: LogId, writer: WriterId) -> Progress | None:
        """A writer's progress in the log, or None."""

    def writers_of_log(self, log: LogId, after: WriterId, limit: int) -> list[tuple[WriterId, Progress]]:
        """A page of the writers with progress in the log, in id order."""

    def producer(self, stream: StreamId, name: str) -> ProducerState | None:
        """What the stream stores about a producer, or None. In a transaction, read under the lock of its row."""

    def producers(self, stream: StreamId, after: str, limit: int) -> list[tuple[str, ProducerState]]:
        """A page of the stream's producers, by name."""

    def count_producers(self, stream: StreamId) -> int:
        """How many producers the stream has."""

    # blobs, leases, requests, changes, state
    def blobs_after(self, after: BlobId, limit: int) -> list[BlobRow]:
        """A page of all blobs in id order."""

    def blob_keys(self, keys: Sequence[str]) -> set[str]:
        """The subset of the keys that the catalog lists."""

    def blob_in_use(self, blob: BlobId) -> bool:
        """True if an extent refers to the blob."""

    def extents_of_blob(self, blob: BlobId) -> list[Extent]:
        """The extents that are in a blob, ordered by log and start."""

    def horizon(self) -> Micros:
        """Blobs begun before this may have been collected."""

    def leases(self) -> list[Lease]:
        """All leases, expired ones too."""

    def request(self, request: str) -> tuple[str, str] | None:
        """The operation and the JSON result recorded under a request id, or None."""

    def changes(self, after: int, limit: int) -> list[Change]:
        """The next rows of the change outbox after the sequence number `after`, at most `limit`."""

    def state(self, kind: StateKind[K, V], key: K) -> V | None:
        """The value of a kind that has this key, or None. This and the next methods raise CorruptCatalog for a row that
        is not as `kind` writes it."""

    def states(self, kind: StateKind[K, V], *, prefix: str = "", limit: int | None = None) -> list[State[K, V]]:
        """The keys and values of a kind, ordered by the keys' text: all, or the first `limit`, of those whose key's
        text begins with `prefix`."""

    def states_among(self, kind: StateKind[K, V], keys: Sequence[K]) -> dict[K, V]:
        """The values of those keys that have one, in one statement."""

    def states_found(
        self, kind: StateKind[K, V], lookup: str, *, below: str | None = None, limit: int | None = None
    ) -> list[State[K, V]]:
        """The keys and values of a kind whose lookup is `lookup`, or with `below`, at least `lookup` and less than
        `below`; ordered by lookup, then by key. Reads an index: rows with other lookups cost nothing."""

    # whole tables, for manifests

    def export(self, table: str, after: Sequence[Value] | None = None) -> list[tuple[Value, ...]]:
        """A page of a table's rows in key order, starting after the key `after`; empty at the end. Tables, columns and
        page sizes are those of `catalog.tables`."""

    def audit(
        self, table: str, after: Sequence[Value] | None = None
    ) -> tuple[Sequence[Value] | None, list[CorruptCatalog]]:
        """Compare a page of a table's rows with their digests, starting after the key `after`, and decode those of
        `states`. Returns the key of the page's last row, None after the end, and an error for each row that is damaged
        or can't be decoded. For all tables of `catalog.tables`."""

    def verify_database(self) -> list[str]:
        """The problems that the database's own integrity checks report, as sentences; empty if it is sound."""


class Writing(Reading, Protocol):
    """A transaction that has its locks from the start. Leaving its context commits; an exception rolls back."""

    def prefetch(
        self,
        *,
        scopes: Sequence[str] = (),
        streams: Sequence[StreamName | StreamId] = (),
        states: Sequence[tuple[StateKind[Any, Any], Any]] = (),
        logs_of: Sequence[StreamId] = (),
    ) -> None:
        """Announce reads (`states`: kinds and keys), and the creation of as many logs as the streams `logs_of` have
        open segments. Where each query costs a round trip, all of these are sent with the next one. Has no other
        effect."""

    def put_scope(self, scope: Scope) -> None:
        """Insert or replace a scope."""

    def drop_scope(self, name: str) -> None:
        """Remove an empty scope."""

    def insert_stream(self, info: StreamInfo) -> None:
        """Insert a stream and its first schema. Raises StreamExists."""

    def update_stream(self, info: StreamInfo) -> None:
        """Replace everything but id and creation time; a new `schema_version` stores its schema too. The caller
        raises `version`."""

    def drop_stream(self, stream: StreamId) -> None:
        """Remove the stream, its segments, spans and producers. Its logs stay until collected, its schemas as long as a
        log does."""

    def put_segment(self, stream: StreamId, segment: Segment) -> None:
        """Insert or replace a segment."""

    def put_span(self, stream: StreamId, span: Span) -> None:
        """Insert or replace the span that begins at `span.offset` of its segment."""

    def drop_spans(self, stream: StreamId, segment: SegmentId) -> None:
        """Remove all spans of a segment."""

    def drop_segments(self, stream: StreamId) -> None:
        """Remove all segments and spans of a stream; the caller then inserts others."""

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        """Create an empty open log; its append times start at `appended_at`. `stream` owns its schema versions."""

    def update_log(self, log: LogState) -> None:
        """Replace a log's state."""

    def drop_log(self, log: LogId) -> None:
        """Remove a log, its extents and the progress of its writers."""

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        """Append one atomic unit inside this transaction; see `Catalog.commit`. Verdicts take into account what the
        transaction has changed so far."""

    def put_progress(self, log: LogId, writer: WriterId, progress: Progress, *, now: Micros) -> None:
        """Replace a writer's progress in the log."""

    def copy_fences(self, log: LogId, successor: LogId) -> None:
        """Copy every writer's fence on `log` to `successor`, where it is not higher already: a writer that was fenced
        off on a segment can't append to its successors either."""

    def drop_progress_before(self, time: Micros, limit: int) -> int:
        """Remove the progress of at most `limit` writers last seen before `time`; returns how many."""

    def put_producer(self, stream: StreamId, name: str, producer: ProducerState) -> None:
        """Insert or replace a producer of an existing stream. Commits only change producers that exist."""

    def drop_producer(self, stream: StreamId, name: str) -> bool:
        """Remove a producer; False if there is none."""

    def insert_blob(self, key: str, size: int, begun_at: Micros, encoding: str) -> BlobId:
        """Add a durable blob to the catalog's list; one that is listed already keeps its id."""

    def swap_extents(self, log: LogId, old: Sequence[Extent], new: Sequence[Extent]) -> bool:
        """Replace `old` by `new`, which cover the same positions. Returns False and does nothing if the log's extents
        there are not exactly `old`."""

    def extend_log(self, log: LogId, extents: Sequence[Extent]) -> None:
        """Add extents at the end of an unsealed log, and advance its length, size, append time and greatest event time.
        For events that were appended elsewhere before: their times, checksums and schema versions stay.

        The first extent begins at the log's length, each other one where the one before ends; append times and running
        sizes never decrease. Their blobs are listed already (`insert_blob`). Raises BlobExpired, as commits do, where a
        blob was begun before the horizon: the collector may have removed it. A lease taken before the blob was begun
        prevents that.
        """

    def drop_extents(self, log: LogId, stop: int | None = None, *, start: int = 0) -> int:
        """Remove the extents that lie wholly in `start <= position < stop` (None: all from start); returns how many."""

    def set_blob_dead(self, blob: BlobId, dead_at: Micros | None) -> None:
        """Mark a blob as unreferenced since `dead_at`, or unmark it (None)."""

    def drop_blobs(self, blobs: Iterable[BlobId]) -> None:
        """Remove blobs that no extent refers to from the catalog's list."""

    def set_horizon(self, horizon: Micros) -> None:
        """Advance the horizon. An earlier time than the current one is ignored."""

    def put_lease(self, lease: Lease) -> None:
        """Insert or renew a lease."""

    def drop_lease(self, lease: str) -> None:
        """Remove a lease. No-op if absent."""

    def record_request(self, request: str, operation: str, result: str, *, now: Micros) -> None:
        """Record the JSON result of an operation under its request id."""

    def drop_requests_before(self, time: Micros, limit: int) -> int:
        """Remove at most `limit` requests recorded before `time`; returns how many."""

    def add_change(self, stream: StreamId | None, kind: str, detail: Mapping[str, object], *, now: Micros) -> None:
        """Add a row to the change outbox."""

    def drop_changes_before(self, time: Micros, limit: int) -> int:
        """Remove at most `limit` rows of the change outbox written before `time`; returns how many."""

    def put_alias(self, name: StreamName, stream: StreamId) -> None:
        """Insert or replace an alias of a stream. The caller has checked that no stream has the name."""

    def drop_alias(self, name: StreamName) -> None:
        """Remove an alias. No-op for a name that is not an alias."""

    def put_state(self, kind: StateKind[K, V], key: K, value: V) -> None:
        """Insert or replace the value of a kind that has this key. The kind is one of `state.kinds.KINDS`."""

    def drop_state(self, kind: StateKind[K, Any], key: K) -> None:
        """Remove the value of a kind that has this key. No-op if absent."""

    # whole tables, for manifests

    def wipe(self) -> None:
        """Remove every row of the tables that a manifest holds (`catalog.tables.TABLES`). No commit runs at the same
        time. The horizon stays."""

    def load(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        """Insert rows as `export` returned them, without the derived columns, into a table that lacks them. Load tables
        in the order of `catalog.tables`. Raises CorruptCatalog for rows that can't be in one catalog: two with one key,
        or one that refers to a missing row. The transaction can't continue then."""

    def skip_ids(self, count: int) -> None:
        """Make the next ids of logs, blobs and changes greater than `count` plus every id that was ever assigned here
        or is in the tables now."""


class Catalog(Protocol):
    """A catalog. Many threads of many processes may use it at once."""

    @property
    def clock(self) -> Clock:
        """The clock that all processes of the store share: the database server's, or the machine's for a catalog in a
        file. Times that one process writes and another compares (leases, ages, heartbeats) come from here. Makes no
        round trip; a time is behind by at most the time that an answer of the database takes."""

    def reading(self) -> AbstractContextManager[Reading]:
        """A snapshot for one plan."""

    def writing(self, subject: Subject | None = None) -> AbstractContextManager[Writing]:
        """A transaction; durable when its context is left without an exception.

        Transactions run one at a time, except that a transaction with a `subject` may run at the same time as
        transactions on other subjects. Such a transaction may read and change only that stream and its segments, spans
        and logs; requests, leases, single values of state, and blobs that it appends; and, with `append`, the ends of
        logs that it does not read. It may also read one scope. A string names a subject that is not a stream, such as a
        value of state."""

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        """Append units. Returns, for each unit, one verdict per part, in order.

        Locks the logs in ascending id, then checks each part in this order: duplicate, fence, seal, gap, condition. The
        row of a unit's producer is locked after the logs, decided before the parts, and changed with them. The parts of
        a unit are accepted or refused together; units are independent. Durable when it returns. Raises AppendUncertain
        if the outcome is unknown; after any other error nothing was appended."""

    def token(self) -> int:
        """A number that differs from that of the last call if any process may have changed something since. Cheap. It
        reflects commits of this object at once, those of others at most `limits.LISTEN_POLL_US` later."""

    def on_change(self, changed: Callable[[], None]) -> bool:
        """Have `changed` called, on a task of the catalog's, soon after a process of the store has committed, until the
        catalog is closed. Returns False if the catalog can't do so, and at every call but the first. Commits may be
        missed and calls may be false alarms, so also poll the token now and then."""

    def translated(self, error: Exception) -> Exception:
        """The store's error for an error of the database's driver, as leaving a transaction would raise it; any other
        error unchanged. For code within a transaction that must know whether an error concerns the whole store."""

    def close(self) -> None:
        """Release the database. A second close is harmless."""
