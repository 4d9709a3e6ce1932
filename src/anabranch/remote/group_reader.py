"""A reader of a group, held by a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.core.python_rows import to_table
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import AppendUncertain, Closed, ReaderNotInGroup, StoreUnavailable
from anabranch.groups.consumer import GroupConsumer, check_positions
from anabranch.groups.ports import StoredPositions
from anabranch.groups.progress import DeliveryMode
from anabranch.model.event import Event
from anabranch.model.ids import StreamId
from anabranch.model.position import Position, StreamSegment
from anabranch.remote.connection import Connection
from anabranch.remote.group_batch import GroupBatch
from anabranch.remote.session import ConnectionLost, RemoteSession
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, pack_table


class RemoteGroupReader(GroupConsumer[GroupBatch]):
    """Like `GroupReader`, over a connection. When the connection is lost, the reader is opened again on another broker
    at once, and continues after the last event handed out: nothing is lost. Another reader of the group gets an event
    that was handed out here only if its segment moved to that reader before the event's position was accepted.

    The session's own task reports the application's progress to the broker whenever the broker asks for a keep-alive.
    """

    def __init__(
        self,
        connection: Connection,
        runtime: Runtime,
        group: str,
        name: str,
        time_window: Callable[[str | None], TimeWindow],
        *,
        ident: StreamId | None = None,
        delivery: DeliveryMode = "at_least_once",
        positions: StoredPositions | None = None,
        batch_rows: int = limits.READER_ROWS_MAX,
        on_close: Callable[[RemoteGroupReader], None] | None = None,
    ) -> None:
        check_positions(positions, delivery)
        super().__init__(runtime.tasks, lambda: None)
        self._group = group
        self._name = name
        self._ident = ident
        self._time_window = time_window
        self._delivery = delivery
        self._positions = positions
        self._batch_rows = batch_rows
        self._clock = runtime.clock
        self._on_close = on_close
        self._callback_error: BaseException | None = None
        self._consumer = token(runtime.ids)
        self._attempt = 0
        self._resets: int | None = None
        self._current: GroupBatch | None = None
        self._finishing = False  # more was requested, so the events handed out are processed
        self._handed_out: dict[StreamSegment, int] = {}  # before the current batch
        self._processed: dict[StreamSegment, int] = {}  # the processed part of `_handed_out`
        self._committed: dict[StreamSegment, int] = {}  # the committed part of `_handed_out`
        self._output = 0  # the number of the last commit with outputs that was written
        self._uncertain = False  # the outcome of the last commit with outputs is unknown
        self._session = RemoteSession(
            f"reader {name} of group {group}",
            connection,
            runtime,
            opening=self._opening,
            on_opened=self._opened,
            asked=self._answer,
            progress=self._progress,
        )

    def _facts(self) -> Mapping[str, object]:
        return {"name": self._name, "group": self._group, "state": "closed" if self._closed else "open"}

    # what it reads

    @property
    def name(self) -> str:
        """The reader's name in its group."""
        return self._name

    @property
    def group(self) -> str:
        """The group's name."""
        return self._group

    @property
    def segments(self) -> list[StreamSegment]:
        """The segments that it reads now."""
        return [StreamSegment.parse(each) for each in self._request("state").fields["segments"]]

    @property
    def position(self) -> Position:
        """The position after the last event or batch handed out, in each segment that the reader has now."""
        return Fields(self._request("state").fields).position("position")

    def time_window(self, stream: str | None = None) -> TimeWindow:
        """See `GroupReader.time_window`."""
        return self._time_window(stream)

    # events and batches

    def _current_events(self) -> Iterator[Event]:
        return iter(()) if self._current is None else self._current.events

    def _whole(self, batch: GroupBatch) -> pa.RecordBatch:
        return batch.as_batch()

    # positions

    def commit(self, outputs: Mapping[str, Any] | None = None) -> None:
        """Accept everything handed out so far, durably; see `GroupReader.commit`. An answer that is lost with its
        connection is looked up, so the outputs are written once."""
        if self._closed:
            raise Closed("reader")
        tables = {stream: to_table(data) for stream, data in (outputs or {}).items()}
        written = self._output
        while True:
            try:
                self._send_outputs(tables)
                answer = self._session.request("commit", self._progress())
                break
            except ConnectionLost:
                self._session.await_open()
                if tables and self._output > written:
                    break  # it was written before the connection was lost
            except (AppendUncertain, StoreUnavailable):
                self._uncertain = bool(tables)
                raise
        if not tables or self._output == written:
            self._output = Fields(answer.fields).count("output")
        self._uncertain = False
        self._committed |= self._handed_out
        if self._current is not None:
            self._committed[self._current.segment] = self._current.next_offset
            self._processed[self._current.segment] = self._current.next_offset

    def _send_outputs(self, tables: Mapping[str, pa.Table]) -> None:
        for stream, table in tables.items():
            rows = max(1, table.num_rows * limits.SESSION_PART_BYTES // max(1, table.nbytes))
            for start in range(0, max(1, table.num_rows), rows):
                fields = {**self._progress(), "stream": stream}
                self._session.request("output", fields, data=pack_table(table.slice(start, rows)))

    # the session

    def _opening(self) -> Frame:
        self._attempt += 1
        fields: dict[str, Any] = {
            "group": self._group,
            "ident": self._ident,
            "reader": self._name,
            "delivery": self._delivery,
            "batch_rows": self._batch_rows,
            "stored": self._positions is not None,
            "consumer": self._consumer,
            "attempt": self._attempt,
        }
        if self._resets is not None:
            fields["resets"] = self._resets
            self._drop_rest()
            if self._delivery != "at_most_once":
                fields["handed_out"] = str(Position.of(self._handed_out))
                fields["processed"] = "" if self._delivery == "exactly_once" else str(Position.of(self._processed))
        return Frame("group.read", 0, fields)

    def _drop_rest(self) -> None:
        """Drop the rest of the current batch, which the next broker sends again. Not with `at_most_once`: there all of
        the batch counts as processed, so no broker sends it again."""
        batch = self._current
        if batch is None or self._delivery == "at_most_once":
            return
        offset = batch.stop()
        self._handed_out[batch.segment] = offset
        if self._finishing:
            self._processed[batch.segment] = offset
        elif not batch.whole:  # the event that was handed out last may be in use
            self._processed[batch.segment] = max(batch.first, offset - 1)
        self._current = None

    def _opened(self, frame: Frame) -> None:
        """Raises ReaderNotInGroup where output was made from events that another reader has now."""
        fields = Fields(frame.fields)
        position, output = fields.position("position").as_dict(), fields.count("output")
        if self._resets is not None and self._delivery == "exactly_once":
            written = output > self._output
            uncommitted = {each: at for each, at in self._handed_out.items() if at > self._committed.get(each, 0)}
            moved = any(position.get(each) != at for each, at in uncommitted.items())
            if (moved and not written) or (self._uncertain and not written):
                raise ReaderNotInGroup(self._group, self._name)
            if written:
                self._uncertain = False
        self._resets, self._output, self._group = fields.count("resets"), output, fields.text("group")

    def _progress(self) -> dict[str, Any]:
        batch = self._current
        if batch is None:
            return {"batch": 0, "handed_out": 0}
        return {"batch": batch.number, "handed_out": batch.handed_out, "whole": batch.whole}

    def _answer(self, asked: Frame) -> dict[str, Any]:
        fields = Fields(asked.fields)
        try:
            if asked.verb == "checkpoint":
                for callback in self._on_checkpoint:
                    callback(fields.text("name"))
                return {}
            if asked.verb == "load" and self._positions is not None:
                segment = StreamSegment.parse(fields.text("segment"))
                return {"offset": self._positions.load(self._group, segment)}
        except BaseException as exc:
            self._callback_error = exc
        return {"failed": True}

    def _request(self, verb: str) -> Frame:
        if self._closed:
            raise Closed("reader")
        while True:
            with suppress(ConnectionLost):
                return self._session.request(verb, self._progress())

    # waiting

    def _wait_until(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> GroupBatch | None:
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while not interrupted():
            left_s = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
            answer = self._next(left_s)
            if answer is None:
                continue
            if answer.verb == "batch":
                return self._start(answer)
            self._finish()
            if Fields(answer.fields).flag("end"):
                return None
            if deadline is not None and self._clock.monotonic() >= deadline:
                return None
        return None

    def _next(self, timeout_s: float | None) -> Frame | None:
        """The answer; None where the connection was lost, or the reader closed by another thread."""
        self._finishing = True
        try:
            return self._session.request("next", {**self._progress(), "timeout_s": timeout_s})
        except ConnectionLost:
            return None
        except Closed:
            if self._closed:
                return None
            raise
        except BaseException:
            if self._callback_error is not None:
                error, self._callback_error = self._callback_error, None
                raise error from None
            raise
        finally:
            self._finishing = False

    def _start(self, answer: Frame) -> GroupBatch:
        self._finish()
        batch = GroupBatch(answer)
        # Segments that the reader no longer has are left out: others read them.
        self._handed_out = dict(batch.position)
        for segment, offset in batch.position.items():
            self._committed.setdefault(segment, offset)
        self._committed = {each: self._committed[each] for each in batch.position}
        self._processed = dict(batch.position)
        self._current = batch
        return batch

    def _finish(self) -> None:
        batch = self._current
        if batch is not None:
            self._handed_out[batch.segment] = self._processed[batch.segment] = batch.next_offset
            self._current = None
            batch.stop()  # an earlier iteration may still hold its events

    # closing

    def _close(self, *, done: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._bridge.close()
        self._session.close({**self._progress(), "done": done})
        if self._on_close is not None:
            self._on_close(self)
