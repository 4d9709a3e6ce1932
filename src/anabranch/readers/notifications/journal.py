"""Noting down: rows of the change outbox become events of the notification stream, each once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.sealed import inlined_place
from anabranch.catalog.port import Catalog, Change, Checkpointed, Reading
from anabranch.core.checksum import checksum
from anabranch.core.codec import encode, event_bounds
from anabranch.core.notifications import Notification, notification_of
from anabranch.errors import StreamNotFound, StreamSealed
from anabranch.log.view import load
from anabranch.model.append import Part, Place, Refused, Unit
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import LogId, StreamId
from anabranch.model.names import OWN_SCOPE, StreamName
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ports import Runtime

NAME: Final = StreamName(OWN_SCOPE, "notifications")
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
_KIND: Final = "notified"  # of the one piece that says up to which row of the outbox all is noted down
_PIECE: Final = "all"


class Journal:
    """Notes changes down. Thread-safe; any number of processes may do so at once: the row of the outbox up to which all is
    noted down moves in the transaction that appends, so each change is there once, in the order of the changes.

    `ensure` makes the stream where it is missing and gives its id; `committed` wakes who waits.
    """

    def __init__(
        self, catalog: Catalog, runtime: Runtime, *, ensure: Callable[[], StreamId], committed: Callable[[], None]
    ) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._ensure = ensure
        self._committed = committed
        self._lock = runtime.tasks.lock()
        self._stream: StreamId | None = None

    def begun(self) -> bool:
        """True if somebody ever asked for notifications: from then on all are kept."""
        with self._catalog.reading() as reading:
            return reading.stream(NAME) is not None

    def stream(self) -> StreamId:
        """The stream that they are noted down in, made anew where somebody deleted it."""
        with self._lock:
            if self._stream is not None:
                with self._catalog.reading() as reading:
                    self._stream = None if reading.stream(self._stream) is None else self._stream
            return self._need_stream()

    def advance(self) -> int:
        """Note down what the outbox holds now; returns the number of the last row. Raises StreamSealed where somebody sealed
        the stream."""
        with self._lock:
            while True:
                position = self._step()
                if position is not None:
                    return position

    def complete(self, position: int) -> bool:
        """True if nothing has changed since the row of this number."""
        with self._catalog.reading() as reading:
            return not reading.changes(position, 1)

    def _need_stream(self) -> StreamId:
        if self._stream is None:
            self._stream = self._ensure()
        return self._stream

    def _step(self) -> int | None:
        """Note a page down; where there is nothing to note down, the number up to which all is."""
        stream = self._need_stream()
        with self._catalog.reading() as reading:
            position = _position(reading)
            changes = reading.changes(position, limits.NOTIFICATION_PAGE)
            if not changes:
                return position
            names = _names(reading, changes)
        found = [
            notification_of(
                c.sequence, c.at, c.kind, c.stream, None if c.stream is None else names.get(c.stream), dict(c.detail)
            )
            for c in changes
        ]
        try:
            self._note([each for each in found if each is not None], stream, position, changes[-1].sequence)
        except StreamNotFound:  # somebody deleted it: there is to be another
            self._stream = None
        return None

    def _note(self, rows: Sequence[Notification], stream: StreamId, position: int, reached: int) -> None:
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
                assert not isinstance(verdict, Refused), "an open log was looked at under its lock"
            txn.put_piece(Checkpointed(_KIND, _PIECE, {"sequence": reached}))
        if rows:
            self._committed()

    def _part(self, rows: Sequence[Notification], log: LogId, schema_version: int) -> Part:
        """The rows as a part that travels in the catalog's row."""
        batch = batch_of(rows)
        message = encode(batch)
        if self._runtime.sealer is not None:
            message = self._runtime.sealer.seal(message, inlined_place(log))
        return Part(
            log=log,
            count=batch.num_rows,
            schema=schema_version,
            place=Place(0, message.size),
            checksum=checksum(message),
            size=batch.nbytes,
            bounds=event_bounds(batch, _SCHEMA),
            data=message.to_pybytes(),
        )


def _position(reading: Reading) -> int:
    piece = reading.piece(_KIND, _PIECE)
    return 0 if piece is None else int(str(piece.value["sequence"]))


def _names(reading: Reading, changes: Iterable[Change]) -> dict[StreamId, str]:
    """What the streams are called that the changes concern: now, or for those that are gone, when they were deleted."""
    found: dict[StreamId, str] = {}
    for change in changes:
        if change.stream is None or change.stream in found:
            continue
        info = reading.stream(change.stream)
        if info is not None:
            found[change.stream] = str(info.name)
    for change in changes:
        if change.stream is not None and change.kind == "deleted":
            found.setdefault(change.stream, str(change.detail["name"]))
    return found


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
    """The inverse of `batch_of`, with whatever columns a reader adds."""
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
