"""Publishes notifications: rows of the change outbox become events of the notification stream, each once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.encryption_contexts import inline_context
from anabranch.catalog.port import Catalog, Change, Reading
from anabranch.catalog.state.listener import ALL, NOTIFIED, Notified
from anabranch.core.checksum import checksum
from anabranch.core.codec import encode, event_bounds
from anabranch.errors import StreamNotFound, StreamSealed
from anabranch.log.view import load
from anabranch.model.append import BlobLocation, Part, Refused, Unit
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import LogId, StreamId
from anabranch.model.names import INTERNAL_SCOPE, StreamName
from anabranch.model.schema import StreamSchema
from anabranch.notifications.kinds import Notification, notification_of
from anabranch.runtime.ports import Runtime

NAME: Final = StreamName(INTERNAL_SCOPE, "notifications")
COLUMNS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("at", TIME_TYPE),
        ("kind", pa.string()),
        ("stream", pa.string()),
        ("stream_id", pa.string()),
        ("reader_group", pa.string()),
        ("segments", pa.int64()),
        ("readers", pa.int64()),
        ("detail", pa.string()),
    ]
)
_SCHEMA: Final = StreamSchema.typed(COLUMNS, "stream", "at")


class NotificationPublisher:
    """Publishes changes. Thread-safe; any number of processes may do so at once. The outbox position up to which
    changes are published advances in the transaction that appends, so each change is published once, in order.

    `ensure` creates the stream if it is missing and returns its id; `on_commit` wakes waiting readers.
    """

    def __init__(
        self, catalog: Catalog, runtime: Runtime, *, ensure: Callable[[], StreamId], on_commit: Callable[[], None]
    ) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._ensure = ensure
        self._on_commit = on_commit
        self._lock = runtime.tasks.lock()
        self._stream: StreamId | None = None
        self._deleted: dict[StreamId, str] = {}  # names of streams that are deleted by changes still to be published
        self._looked_until = 0  # the number of the last change that was searched for deletions

    def is_enabled(self) -> bool:
        """True once notifications were first requested: all later changes are published."""
        with self._catalog.reading() as reading:
            return reading.stream(NAME) is not None

    def stream(self) -> StreamId:
        """The notification stream; created again if it was deleted."""
        with self._lock:
            if self._stream is not None:
                with self._catalog.reading() as reading:
                    self._stream = None if reading.stream(self._stream) is None else self._stream
            return self._ensure_stream()

    def advance(self) -> int:
        """Publish the rows that are in the outbox; returns the number of the last row. Raises StreamSealed if the
        notification stream was sealed."""
        with self._lock:
            while True:
                position = self._publish_page()
                if position is not None:
                    return position

    def complete(self, position: int) -> bool:
        """True if the outbox has no row after this number."""
        with self._catalog.reading() as reading:
            return not reading.changes(position, 1)

    def _ensure_stream(self) -> StreamId:
        if self._stream is None:
            self._stream = self._ensure()
        return self._stream

    def _publish_page(self) -> int | None:
        """Publish a page of rows and return None. If no rows are left, return the number of the last published row."""
        stream = self._ensure_stream()
        with self._catalog.reading() as reading:
            position = _position(reading)
            changes = reading.changes(position, limits.NOTIFICATION_PAGE)
            if not changes:
                self._deleted.clear()
                return position
            self._looked_until = max(self._looked_until, position)
            names = self._names(reading, changes)
        notifications = [
            notification_of(
                c.sequence, c.at, c.kind, c.stream, None if c.stream is None else names.get(c.stream), dict(c.detail)
            )
            for c in changes
        ]
        try:
            self._append_page(
                [each for each in notifications if each is not None], stream, position, changes[-1].sequence
            )
        except StreamNotFound:  # it was deleted: create another
            self._stream = None
        return None

    def _names(self, reading: Reading, changes: Iterable[Change]) -> dict[StreamId, str | None]:
        """The names of the streams that the changes concern: current names, or for deleted streams the last names."""
        names: dict[StreamId, str | None] = {}
        for change in changes:
            if change.stream is not None and change.stream not in names:
                info = reading.stream(change.stream)
                names[change.stream] = (
                    self._name_at_deletion(reading, change.stream) if info is None else str(info.name)
                )
        return names

    def _name_at_deletion(self, reading: Reading, stream: StreamId) -> str | None:
        """The last name of a deleted stream, from the change of its deletion, which may be on a later page. None if
        that change was published before."""
        while stream not in self._deleted:
            page = reading.changes(self._looked_until, limits.NOTIFICATION_PAGE)
            if not page:
                return None
            for change in page:
                if change.stream is not None and change.kind == "deleted":
                    self._deleted[change.stream] = str(change.detail["name"])
            self._looked_until = page[-1].sequence
        return self._deleted[stream]

    def _append_page(self, rows: Sequence[Notification], stream: StreamId, position: int, last_sequence: int) -> None:
        now = self._runtime.clock.now()
        with self._catalog.writing(stream) as txn:
            if _position(txn) != position:
                return  # another process was first
            view = load(txn, stream)
            if rows:
                log = view.open_log(view.current[0].id)
                if log is None:
                    raise StreamSealed(str(view.info.name))
                (verdict,) = txn.append(Unit((self._part(rows, log, view.info.schema_version),)), now=now)
                assert not isinstance(verdict, Refused), "the log was open under its lock"
            txn.put_state(NOTIFIED, ALL, Notified(last_sequence))
        if rows:
            self._on_commit()

    def _part(self, rows: Sequence[Notification], log: LogId, schema_version: int) -> Part:
        """The rows as a part that is stored inline in the catalog's row."""
        batch = batch_of(rows)
        message = encode(batch)
        if self._runtime.sealer is not None:
            message = self._runtime.sealer.seal(message, inline_context(log))
        return Part(
            log=log,
            count=batch.num_rows,
            schema=schema_version,
            location=BlobLocation(0, message.size),
            checksum=checksum(message),
            size=batch.nbytes,
            bounds=event_bounds(batch, _SCHEMA),
            data=message.to_pybytes(),
        )


def _position(reading: Reading) -> int:
    notifications = reading.state(NOTIFIED, ALL)
    return 0 if notifications is None else notifications.sequence


def batch_of(rows: Sequence[Notification]) -> pa.RecordBatch:
    """Notifications as rows of the stream."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([each.id for each in rows], pa.int64()),
            pa.array([each.at for each in rows], pa.int64()).cast(TIME_TYPE),
            pa.array([each.kind for each in rows], pa.string()),
            pa.array([each.stream for each in rows], pa.string()),
            pa.array([None if each.stream_id is None else f"{each.stream_id:016x}" for each in rows], pa.string()),
            pa.array([each.group for each in rows], pa.string()),
            pa.array([each.segments for each in rows], pa.int64()),
            pa.array([each.readers for each in rows], pa.int64()),
            pa.array([json.dumps(dict(each.detail), ensure_ascii=False, sort_keys=True) for each in rows], pa.string()),
        ],
        schema=_SCHEMA.columns,
    )


def notifications_of(batch: pa.RecordBatch) -> list[Notification]:
    """The inverse of `batch_of`; ignores columns that a reader adds."""
    columns: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in COLUMNS.names if name != "at"}
    at = batch.column("at").cast(pa.int64()).to_pylist()
    return [
        Notification(
            columns["id"][i],
            at[i],
            columns["kind"][i],
            columns["stream"][i],
            None if columns["stream_id"][i] is None else StreamId(int(columns["stream_id"][i], 16)),
            columns["reader_group"][i],
            columns["segments"][i],
            columns["readers"][i],
            json.loads(columns["detail"][i]),
        )
        for i in range(batch.num_rows)
    ]
