"""The embedded store: one object that offers everything a store can do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch import limits
from anabranch.blobs.attached import AttachedBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Lease, Writing
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.redact import shown_address
from anabranch.core.routing import RoutingKey
from anabranch.deployments.api import DeployedQueries
from anabranch.deployments.templates.api import Templates
from anabranch.errors import InvalidArgument
from anabranch.log.appender import Appender
from anabranch.log.attachments import attached_place
from anabranch.log.checking.check import Finding, check
from anabranch.log.checking.repair import RepairAction, repair
from anabranch.log.commit import Committer
from anabranch.log.lease import HeldLease
from anabranch.log.misplaced import count_misplaced
from anabranch.log.prewrite import since_horizon, since_lease
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.read import LogReader
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.backup import BackupReport, backup
from anabranch.log.recovery.identity import store_id
from anabranch.log.recovery.manifest import Manifest
from anabranch.log.recovery.rebuild import release_reported
from anabranch.log.tail import Tail
from anabranch.log.time_index import cut_at
from anabranch.log.upkeep.collect import CollectReport, collect
from anabranch.log.upkeep.compact import CompactReport, compact
from anabranch.log.upkeep.failures import UpkeepFailure, run_all, upkeep_failures
from anabranch.log.upkeep.maintenance import Maintenance
from anabranch.log.upkeep.space import SpaceReport, measure_space
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.event import Event
from anabranch.model.ids import Micros, StreamId
from anabranch.model.misplaced import Misplaced
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.model.rate import Rate
from anabranch.model.stream import StreamView
from anabranch.model.time_kind import TimeKind
from anabranch.modules.api import Modules
from anabranch.reading.bounds import Place, fetch
from anabranch.reading.history.cache import RangeCache
from anabranch.reading.latest import LatestEvents
from anabranch.reading.reader import Reader
from anabranch.reading.row_source import ReaderOptions
from anabranch.reading.store_rows import StoreRows
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.runtime.version import VERSION
from anabranch.store.addresses import StoreAddresses
from anabranch.store.archives import Archives, open_archive_place
from anabranch.store.byte_streams import ByteStreams
from anabranch.store.groups import Groups
from anabranch.store.history import History
from anabranch.store.history_source import StoreHistory
from anabranch.store.notifications import StoreNotifications
from anabranch.store.open_store import OpenStore
from anabranch.store.parts import StoreContext
from anabranch.store.policies import StorePolicies
from anabranch.store.producers import Producers
from anabranch.store.scopes import StoreScopes
from anabranch.store.shared_state import SharedState
from anabranch.store.storage import open_blobs
from anabranch.store.streams import StoreStreams
from anabranch.store.subscribers import StoreSubscribers
from anabranch.store.transactions import Transactions
from anabranch.store.watermarks import StoreWatermarks
from anabranch.store.write import RejectedRow, WriteReport, write
from anabranch.streams.algebra.cuts import Cuts
from anabranch.streams.change import Changes
from anabranch.streams.companions.api import Companions
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.lineage.api import Lineage
from anabranch.streams.names.api import Aliases
from anabranch.streams.publish import NumberedUnit, Publication, publish
from anabranch.streams.requests import check_request
from anabranch.streams.retention.apply import RetainReport, retain, retain_if_due
from anabranch.streams.scaling.apply import RescaleReport, rescale
from anabranch.streams.scaling.plan import ScalingPace
from anabranch.transactions.sweep import sweep_transactions
from anabranch.transactions.transaction import Transaction
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.manager import Jobs
from anabranch.writing.producer import Producer
from anabranch.writing.producer_claim import OpenedProducer
from anabranch.writing.staging import Stager
from anabranch.writing.writer import Writer

if TYPE_CHECKING:
    from anabranch.log.keyring import Keyring, Rotation


class Store(OpenStore):
    """Streams in a catalog and blobs. Thread-safe. Close it, or use it as a context manager; the interpreter's exit
    closes it too. `addresses` are those it was opened with; None unless `connect` opened it. `internals` are its parts,
    for Spark and other code of this package: not part of the public API."""

    def __init__(
        self,
        catalog: Catalog,
        blobs: Blobs,
        runtime: Runtime,
        *,
        url: str = "",
        keyring: Keyring | None = None,
        addresses: StoreAddresses | None = None,
    ) -> None:
        runtime = replace(runtime, clock=catalog.clock)  # one clock for all processes of the store
        super().__init__(runtime)
        self.url = url
        self.addresses = addresses
        self._keyring = keyring
        self.catalog = catalog
        blobs = AttachedBlobs(blobs, runtime.tasks, locate=self._attached, open_location=self._open_place)
        self.blobs: Blobs = blobs
        self._tail = Tail(catalog, runtime)
        self._appender = Appender(Committer(catalog, blobs, runtime), runtime, committed=self._tail.notify)
        self._logs = LogReader(catalog, blobs, runtime)
        self.changes = Changes(catalog, runtime, self._tail.notify)
        self.companions = Companions(self.changes)
        self.ephemeral = Ephemeral(self.changes)
        self.streams: StoreStreams = StoreStreams(
            self.changes, self.companions, self.ephemeral, self._count_misplaced, self
        )
        self.scopes = StoreScopes(self.changes, self.companions, self)
        self.aliases = Aliases(self.changes)
        self.cuts = Cuts(self.changes, self._cut_at, self._count_misplaced)
        self.lineage = Lineage(self.changes)
        self.archives = Archives(self.changes, self)
        parts = self.internals = StoreContext(
            catalog, blobs, runtime, self._logs, self._tail, self._check_open, self._keep, self._forget
        )
        self.shared = SharedState(parts, self.streams)
        self.subscribers = StoreSubscribers(parts, self.streams, self.shared, self._cut_at)
        self.policies = StorePolicies(self.changes, self.subscribers)
        self.notifications = StoreNotifications(parts, self.streams, self.scopes)
        self.watermarks = StoreWatermarks(parts, self.streams, self.companions, self.shared)
        self.groups = Groups(
            parts,
            self.streams,
            self.shared,
            stage=self.stager,
            listen=self.notifications.listen_to_group,
            window=self.watermarks.window,
        )
        self.producers = Producers(parts, self.streams, self._writer)
        self.queries = DeployedQueries(self.changes, self.reader, self.latest)
        self.templates = Templates(self.changes)
        self.modules = Modules(self.changes)
        self.transactions = Transactions(parts, note=self.watermarks.note_commit)
        self._byte_streams = ByteStreams(parts, self.streams, self.changes, self._writer)
        self.bytes = self._byte_streams.open
        self._latest = LatestEvents(catalog, self._logs, runtime)
        self.ranges = RangeCache(runtime.tasks, runtime.settings.history_cache_bytes_max)
        self._sources: list[Store] = []  # opened for jobs that were resumed
        self.jobs = Jobs(self.job_store, open_job_store=self._open_source, changed=self._tail.notify)
        self._maintenance = Maintenance(catalog, blobs, runtime, sweep=self._sweep)
        self._maintenance.start()
        self._scaling = Periodic(runtime, "scaling", runtime.settings.scaling_s, self._rescale)
        self._scaling.start()
        self._close_at_exit()

    def _attached(self, attachment: str) -> str | None:
        with self.catalog.reading() as txn:
            return attached_place(txn, attachment)

    def _open_place(self, place: str) -> Blobs:
        return open_blobs(place, self.runtime, create=False)

    def _facts(self) -> Mapping[str, object]:
        return {
            "url": shown_address(self.url),
            "state": "closed" if self._closed else "open",
            "open handles": len(self._open),
        }

    @property
    def job_store(self) -> JobStore:
        """The parts of this store that its own jobs and other stores' jobs use."""
        opened = self.addresses
        others = {} if opened is None else {"blobs": opened.blobs, "history": opened.history, "keys": opened.keys}
        place = {"url": self.url} | {name: value for name, value in others.items() if value is not None}
        open_location = partial(open_archive_place, runtime=self.runtime)
        return JobStore(self.catalog, self.blobs, self.runtime, place, open_location, f"anabranch {VERSION}")

    # writing and reading

    def writer(
        self,
        stream: str | StreamName,
        *,
        writer_id: str | None = None,
        producer: str | None = None,
        fence: int | None = None,
        note_time_s: float | None = None,
    ) -> Writer:
        """Open a writer to a stream; see `Writer`. With `producer` it takes over the producer of this name: each write, of
        an event or a batch, is an append with the next number, and `Writer.next_number` says after a restart which one
        comes next; see `producer`. With `note_time_s` it notes the clock's time at that interval in
        seconds, for events whose time is the time of writing. Raises StreamNotFound, StreamSealed, InvalidArgument for
        a byte stream."""
        self._check_open()
        if producer is not None:
            if writer_id is not None:
                raise InvalidArgument("pass either writer_id= or producer=, not both")
            opened, name = self.producers.claim(stream, producer, None)
            return self._writer(opened.stream, name=name, fence=fence, note_time_s=note_time_s, producer=opened)
        info = self.streams.get(stream)
        reject_byte_stream(info)
        return self._writer(info.id, name=str(info.name), writer_id=writer_id, fence=fence, note_time_s=note_time_s)

    def producer(self, stream: str | StreamName, name: str, *, epoch: int | None = None) -> Producer:
        """Open a producer of a stream; see `Producer`. A stream keeps its producers as long as it lives.

        Without an `epoch` the producer is taken over from its present owner: its epoch rises by one, older owners are
        refused from now on, and its numbers continue after `Producer.last_sequence`. With the stored epoch it is opened
        in addition to its other owners; all owners then pass the numbers themselves. With a later epoch a new sequence
        begins at 0. Raises Fenced for an older epoch, StreamNotFound, InvalidArgument for a byte stream, Conflict for a
        stream with too many producers."""
        return self.producers.open(stream, name, epoch=epoch)

    def _writer(
        self,
        stream: StreamId,
        *,
        name: str = "",
        writer_id: str | None = None,
        resumed: int | None = None,
        fence: int | None = None,
        note_time_s: float | None = None,
        producer: OpenedProducer | None = None,
    ) -> Writer:
        """As `writer`, but also for byte streams; `resumed` as for `Writer`."""
        writer = Writer(
            self._appender,
            self.catalog,
            self.runtime,
            stream,
            writer_id=writer_id,
            resumed=resumed,
            fence=fence,
            on_close=self._forget,
            note=self.watermarks.note,
            note_time_s=note_time_s,
            name=name,
            producer=producer,
        )
        return self._keep(writer)

    def write(
        self,
        stream: str | StreamName,
        data: Any,
        *,
        create: bool = False,
        key: str | None = None,
        time: str | None = None,
        segments: int = 1,
        add_columns: bool = False,
        atomic: bool = False,
        skip_errors: int | None = 0,
        on_rejected: Callable[[RejectedRow], None] | None = None,
    ) -> WriteReport:
        """Write a batch, or a stream of batches (anything with `__arrow_c_stream__`: Arrow, pandas, polars, DuckDB …,
        also larger than memory). Returns once all rows are durable.

        With `create` a stream that does not exist is created, with its scope, from the data's columns, with `segments`,
        and with `key` and `time` as routing key and event time. With `add_columns` the stream gets the nullable columns
        that only the data has. Both happen once there are valid rows; a call that fails before an event is durable
        leaves no stream and no scope behind.

        A row that the stream refuses raises InvalidArgument with its number; the rows before it are written. Up to
        `skip_errors` such rows (None: any number) are skipped and counted instead, each after `on_rejected` was called
        with it. With `atomic` all valid rows become visible at once or not at all; they must fit into 1 GiB.

        Calling again writes again. After an error of an atomic call that is not AppendUncertain nothing is written, so
        it can be repeated; to write exactly once across failures of the process, use a transaction with an id. Raises
        StreamNotFound, SchemaMismatch for an unknown column, and what `Writer.write_batch` raises.
        """
        self._check_open()
        return write(
            self,
            self.runtime.settings,
            stream,
            data,
            create=create,
            key=key,
            time=time,
            segments=segments,
            add_columns=add_columns,
            atomic=atomic,
            skip_errors=skip_errors,
            on_rejected=on_rejected,
        )

    def reader(
        self,
        stream: str | StreamName,
        *,
        start: Place = HEAD,
        end: Place | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        between: tuple[datetime | int | str, datetime | int | str] | None = None,
        by: TimeKind = "append",
        batch_rows: int = limits.READ_ROWS_MAX,
        rate: Rate | None = None,
    ) -> Reader:
        """Open a reader of a stream; see `Reader` for what the arguments mean and what they raise."""
        self._check_open()
        self.notifications.freshen(stream)
        ident = self.streams.get(stream).id
        options = ReaderOptions(
            start=start, end=end, follow=follow, columns=columns, between=between, by=by, batch_rows=batch_rows
        )
        reader = Reader(
            StoreRows(self.catalog, self._logs, self._tail, self.runtime, ident, options),
            self.runtime,
            rate=rate,
            on_close=self._forget,
            window=lambda position: self.watermarks.window(ident, position),
        )
        return self._keep(reader)

    def transaction(self, ident: str | None = None, *, lease_s: float = limits.TRANSACTION_LEASE_S) -> Transaction:
        """Begin a transaction, or with `ident` resume an open one; see `Transactions.begin`."""
        return self.transactions.begin(ident, lease_s=lease_s)

    def fetch(self, pointer: EventPointer | str) -> Event:
        """Return the event at a pointer. Raises InvalidPointer, StreamNotFound, EventNotFound, Truncated."""
        self._check_open()
        where = pointer if isinstance(pointer, EventPointer) else EventPointer.parse(pointer)
        return fetch(self._logs, self.streams.view(where.stream), where)

    def latest(self, stream: str | StreamName, key: RoutingKey | None, *, by_time: bool = False) -> Event | None:
        """Return the last event with a routing key, given as a plain value or as its text (`5` or `"5"`), of all that
        were durable at the call: the stream as a table. None if the key has no event, or its last event was truncated.
        With `by_time`, of several events that were appended together, the one with the newest event time is the last:
        the results of a micro-batch are in no order.

        The first call for a stream reads it whole, and keeps the last event of each key in memory (at most 256 MiB for
        all streams of a store; the least recently used are evicted first). Later calls read what was appended since.
        Raises StreamNotFound, InvalidArgument for a stream without a key column, InvalidKey, TooLarge, and what a
        reader raises."""
        self._check_open()
        return self._latest.get(self.streams.get(stream).id, key, by_time=by_time)

    def history(self, stream: str | StreamName) -> History:
        """The stream's history, to be read in parts and in parallel; see `History`. Raises StreamNotFound."""
        self._check_open()
        self.notifications.freshen(stream)
        info = self.streams.get(stream)
        return History(self._history, info.id, info.name)

    @property
    def _history(self) -> StoreHistory:
        return StoreHistory(self.internals, self.streams, self.ranges, self.addresses)

    # staging: for jobs whose output is published as a whole or not at all

    def hold(self, kind: str, holder: str, *, first_us: int | None = None) -> HeldLease:
        """A lease. Enter it before staging anything and keep it until publishing is done; see `HeldLease`."""
        self._check_open()
        return HeldLease(self.catalog, self.runtime, kind, holder, initial_us=first_us)

    def stager(self, stream: str | StreamName | StreamId, *, lease: Lease | None = None) -> Stager:
        """A stager of events for a stream, under `lease` if one is given; see `Stager`. Raises StreamNotFound,
        InvalidArgument for a byte stream."""
        self._check_open()
        view = self.streams.view(stream)
        reject_byte_stream(view.info)
        ranges = tuple(segment.range for segment in view.current)
        earliest = since_horizon(self.catalog) if lease is None else since_lease(lease)
        schema, version = view.info.schema, view.info.schema_version
        return Stager(self.blobs, self.runtime, schema, version, ranges, earliest=earliest)

    def publish(
        self,
        publications: Sequence[Publication],
        *,
        request: str | NumberedUnit,
        guard: Callable[[Writing, Micros], None] | None = None,
    ) -> bool:
        """Make staged events visible, all at once and only once; see `anabranch.streams.publish`. `guard` is called in the
        same transaction, before anything else: if it raises, nothing is published. It may read single entries of state."""
        self._check_open()
        if not isinstance(request, NumberedUnit):
            check_request(request)
        done = publish(self.catalog, self.blobs, self.runtime, publications, request=request, before_append=guard)
        self._tail.notify()
        return done

    # upkeep

    def compact(
        self, stream: str | StreamName | None = None, *, force: bool = False, progress: ProgressCallback | None = None
    ) -> CompactReport:
        """Compact recent blobs into Parquet; see `anabranch.log.upkeep.compact`. `force` also compacts amounts too
        small to be worth it."""
        self._check_open()
        ident = None if stream is None else self.streams.get(stream).id
        return compact(self.catalog, self.blobs, self.runtime, stream=ident, force=force, progress=progress)

    def collect(self, *, horizon_us: int | None = None, progress: ProgressCallback | None = None) -> CollectReport:
        """Remove ephemeral streams that nothing holds any more, and data that nothing views; see
        `anabranch.log.upkeep.collect`."""
        self._check_open()
        swept = self.ephemeral.sweep()
        self.companions.sweep()
        sweep_transactions(self.catalog, self.runtime)
        self.notifications.publish_pending()
        report = collect(self.catalog, self.blobs, self.runtime, horizon_us=horizon_us, progress=progress)
        report.streams = swept
        return report

    def space(self) -> SpaceReport:
        """The bytes of the store's files: those that streams view, and those that no stream views any more, with the
        reason why these are kept and until when; see `anabranch.log.upkeep.space`."""
        self._check_open()
        return measure_space(self.catalog, self.blobs, self.runtime)

    def rescale(self, *, pace: ScalingPace | None = None) -> RescaleReport:
        """Sample the streams that scale by load, and scale each by one step if that is due. Call it repeatedly, unless
        `Settings.scaling_s` has it run in the background; see `anabranch.streams.scaling.apply`."""
        self._check_open()
        return self._rescale(pace=pace, background=False)

    def _rescale(self, *, pace: ScalingPace | None = None, background: bool = True) -> RescaleReport:
        report = rescale(self.catalog, self.runtime, pace=pace, background=background)
        if report.scaled:
            self._tail.notify()
        return report

    def retain(
        self, stream: str | StreamName | None = None, *, progress: ProgressCallback = no_progress
    ) -> RetainReport:
        """Truncate what the retention policy of one stream, or of all streams, releases now; see
        `Policies.retention`."""
        self._check_open()
        ident = None if stream is None else self.streams.get(stream).id
        report = retain(
            self.catalog,
            self.runtime,
            self._cut_at,
            stream=ident,
            open_group=self.subscribers.open_group,
            progress=progress,
        )
        self._tail.notify()
        return report

    def check(
        self, stream: str | StreamName | None = None, *, deep: bool = True, progress: ProgressCallback | None = None
    ) -> Iterator[Finding]:
        """Yield what is wrong with the store or with one stream; nothing for a sound one. See
        `anabranch.log.checking.check`."""
        self._check_open()
        ident = None if stream is None else self.streams.get(stream).id
        now = self.runtime.clock.now()
        return check(
            self.catalog, self.blobs, stream=ident, deep=deep, now=now, progress=progress, sealer=self.runtime.sealer
        )

    def upkeep_failures(self) -> list[UpkeepFailure]:
        """The streams for which upkeep failed and has not succeeded since; `check` and the metrics report them too."""
        self._check_open()
        with self.catalog.reading() as reading:
            return upkeep_failures(reading)

    def rotate_keys(self) -> Rotation:
        """Wrap this store's data keys with the current master key of the keys it was opened with, and encrypt new bytes
        with a new data key; see `Keyring.rotate`. Raises InvalidArgument for a store that is not encrypted."""
        self._check_open()
        if self._keyring is None:
            raise InvalidArgument("this store is not encrypted, so it has no keys to rotate")
        return self._keyring.rotate()

    # recovery

    @property
    def id(self) -> str:
        """The store's id, 32 hex digits, which its backups, manifests and archives say. A restored or rebuilt store
        keeps it. Raises ReadOnlyStore if it was never chosen and can't be."""
        self._check_open()
        return store_id(self.catalog, self.runtime)

    def repair(
        self, stream: str | StreamName | None = None, *, dry_run: bool = False, progress: ProgressCallback = no_progress
    ) -> Iterator[RepairAction]:
        """Repair what `check` finds, where that is safe. Works while being iterated over; see
        `anabranch.log.checking.repair`."""
        self._check_open()
        ident = None if stream is None else self.streams.get(stream).id
        now = self.runtime.clock.now()
        return repair(self.catalog, stream=ident, dry_run=dry_run, now=now, progress=progress)

    def backup(self, place: str | os.PathLike[str], *, progress: ProgressCallback = no_progress) -> BackupReport:
        """Copy the catalog and the blobs it needs to a folder or an object store; see
        `anabranch.log.recovery.backup`."""
        self._check_open()
        with closing(open_blobs(place, self.runtime, create=True)) as target:
            return backup(self.catalog, self.blobs, target, self.runtime, progress=progress)

    def export_manifest(self, *, progress: ProgressCallback = no_progress) -> Manifest:
        """Write a copy of the catalog among the store's blobs, so that it can be rebuilt; see
        `anabranch.log.recovery.manifest`."""
        self._check_open()
        return manifests.export(self.catalog, self.blobs, self.runtime, progress=progress)

    def forget_newer(self) -> bool:
        """Let the collector remove the blobs that a rebuild reported. Returns False if there was no such report."""
        self._check_open()
        return release_reported(self.catalog)

    # closing

    def _close_parts(self) -> None:
        self.jobs.close()
        for source in self._sources:
            source.close()
        self._maintenance.close()
        self._scaling.close()
        self.ephemeral.close()
        self._appender.close()
        self._tail.close()
        self.catalog.close()
        self.blobs.close()

    def _sweep(self) -> None:
        """Remove what has expired; runs in the background."""
        run_all(
            (
                self.ephemeral.sweep,
                self.companions.sweep,
                lambda: sweep_transactions(self.catalog, self.runtime),
                self.notifications.publish_pending,
                lambda: retain_if_due(self.catalog, self.runtime, self._cut_at, open_group=self.subscribers.open_group),
            )
        )

    def _open_source(self, place: Mapping[str, str]) -> Store:
        """Open the store that a resumed job reads; closed with this one."""
        from anabranch.store import connect

        source = connect(
            place["url"],
            blobs=place.get("blobs"),
            history=place.get("history"),
            keys=place.get("keys"),
            create=False,
        )
        with self._lock:
            self._sources.append(source)
        return source

    def _cut_at(self, view: StreamView, time: Micros, by_event_time: bool) -> StreamCut:
        return cut_at(self._logs, view, time, by_event_time=by_event_time)

    def _count_misplaced(self, view: StreamView, time: Micros, cut: StreamCut | None, by_event_time: bool) -> Misplaced:
        return count_misplaced(self._logs, view, time, cut, by_event_time=by_event_time)
