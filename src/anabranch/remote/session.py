"""The client's end of a session: state that a broker holds for a client. After a lost connection, the session is opened
again on another broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, Closed, InvalidArgument, StoreUnavailable
from anabranch.remote.connection import AGAIN, Connection
from anabranch.runtime.log_events import SESSION_REOPENED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task
from anabranch.wire.errors import error_from_json
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame


class ConnectionLost(Exception):
    """The connection was lost before the answer came; the session was opened again since, or will be."""


class RemoteSession:
    """A session. `request` is for one thread at a time; a task of its own receives, and opens the session again.

    `opening` returns the message that opens it, for each attempt. `on_opened` gets the broker's answer, in the task
    that receives (at the first opening, in the caller's thread). An AnabranchError that `on_opened` raises ends the
    session, as an error of the broker does. `asked` answers what the broker asks in the middle of a request, in the
    requesting thread. `progress` returns the message for the broker when it asks for a keep-alive."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        runtime: Runtime,
        *,
        opening: Callable[[], Frame],
        on_opened: Callable[[Frame], None],
        asked: Callable[[Frame], dict[str, Any]] = lambda frame: {},
        progress: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._name = name
        self._connection = connection
        self._runtime = runtime
        self._opening = opening
        self._on_opened = on_opened
        self._asked = asked
        self._progress = progress
        self._changed = runtime.tasks.condition()
        self._sending = runtime.tasks.lock()
        self._inbox: list[Frame] = []
        self._number = 0
        self._opened = 0  # how many times
        self._generation = 0  # of the connection on which it was opened last
        self._token: str | None = None  # of the session as it was opened last, in every message
        self._writer: Any = None  # Flight's, of the exchange
        self._reader: Any = None
        self._error: AnabranchError | TimeoutError | None = None
        self._closed = False
        self._lost_at = 0.0
        self._task: Task | None = None
        connection.retried(self._open)
        self._task = runtime.tasks.spawn(f"session {name}", self._run)

    @property
    def ended(self) -> bool:
        """True once it is closed, or has failed for good."""
        return self._closed or self._error is not None

    @property
    def closed(self) -> bool:
        """True once it is closed."""
        return self._closed

    @property
    def opening(self) -> int:
        """How many times it was opened."""
        return self._opened

    def request(
        self, verb: str, fields: dict[str, Any], *, data: pa.Buffer | None = None, opening: int | None = None
    ) -> Frame:
        """Send a request and return its answer. Raises the error that the broker answers with; ConnectionLost where the
        connection was lost meanwhile, so that the outcome is unknown; StoreUnavailable where no broker was reached for
        `limits.SESSION_REOPEN_S` seconds; Closed. With `opening`, the request is sent only within the opening of that
        number."""
        opened = self._await_open(limits.SESSION_REOPEN_S)
        if opening not in (None, opened):
            raise ConnectionLost
        self._number += 1
        number = self._number
        self._send(Frame(verb, number, fields, data), opened)
        while True:
            frame = self._await_frame(opened)
            if frame.number == number:
                if frame.verb == "error":
                    raise error_from_json(frame.fields.get("error"))
                return frame
            if frame.number == 0 and frame.verb == "error":
                raise error_from_json(frame.fields.get("error"))
            if frame.number == 0:
                self._send(Frame("answered", 0, self._asked(frame)), opened)

    def tell(self, verb: str, fields: dict[str, Any]) -> None:
        """Send a message that gets no answer, if the session is connected."""
        with suppress(ConnectionLost):
            self._send(Frame(verb, 0, fields), self._opened)

    def close(self, fields: dict[str, Any], *, timeout_s: float = limits.SESSION_CLOSE_S) -> None:
        """Close it in an orderly way; if it is not connected, wait `timeout_s` seconds for that. A request in another thread gets Closed. A second call is
        harmless. Raises the error that the broker closed it with."""
        if self._closed:
            return
        with suppress(AnabranchError, TimeoutError):
            self._await_open(timeout_s)
        with self._changed:
            self._closed = True
            opened, connected = self._opened, self._writer is not None
            self._changed.notify_all()
        answer: Frame | None = None
        if connected:
            with suppress(ConnectionLost):
                self._send(Frame("close", 0, fields), opened)
                answer = self._await_closed(timeout_s)
        if answer is None:
            self.cancel()
        else:
            self._finish()
        if answer is not None and answer.verb == "error":
            raise error_from_json(answer.fields.get("error"))

    def _finish(self) -> None:
        """The broker has closed the session: end the exchange."""
        with self._sending, suppress(pa.ArrowException, OSError):
            if self._writer is not None:
                self._writer.done_writing()
        if self._task is not None:
            self._task.join(limits.SESSION_CLOSE_S)

    def cancel(self) -> None:
        """End it at once, as if the connection was lost for good."""
        with self._changed:
            self._closed = True
            reader = self._reader
            self._changed.notify_all()
        if reader is not None:
            with suppress(pa.ArrowException, OSError):
                reader.cancel()
        if self._task is not None:
            self._task.join(limits.SESSION_REOPEN_S)

    # the requesting thread

    def await_open(self) -> None:
        """Wait until the session is open, after ConnectionLost. Raises what `request` raises."""
        self._await_open(limits.SESSION_REOPEN_S)

    def _await_open(self, patience_s: float) -> int:
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                if self._closed:
                    raise Closed("session")
                if self._writer is not None:
                    self._inbox.clear()
                    return self._opened
                left_s = self._lost_at + patience_s - self._runtime.clock.monotonic()
                if left_s <= 0:
                    raise StoreUnavailable(f"no broker could be reached for {patience_s:g} s")
                self._changed.wait(left_s)

    def _await_frame(self, opened: int) -> Frame:
        with self._changed:
            while True:
                if self._closed:
                    raise Closed("session")
                if self._inbox:
                    return self._inbox.pop(0)
                if self._error is not None:
                    raise self._error
                if self._opened != opened or self._writer is None:
                    raise ConnectionLost
                self._changed.wait()

    def _await_closed(self, timeout_s: float) -> Frame | None:
        deadline = self._runtime.clock.monotonic() + timeout_s
        with self._changed:
            while True:
                for frame in self._inbox:
                    if frame.verb == "closed" or (frame.verb == "error" and frame.number == 0):
                        return frame
                left_s = deadline - self._runtime.clock.monotonic()
                if self._writer is None or left_s <= 0:
                    return None
                self._changed.wait(left_s)

    def _send(self, frame: Frame, opened: int) -> None:
        with self._sending:
            with self._changed:
                writer, session = self._writer, self._token
                if writer is None or self._opened != opened:
                    raise ConnectionLost
            message = Frame(frame.verb, frame.number, {**frame.fields, "session": session}, frame.data).pack()
            try:
                writer.write_metadata(message)
            except (pa.ArrowException, OSError) as exc:
                raise ConnectionLost from exc

    # the task that receives

    def _open(self) -> None:
        """Open the session on the present broker. Raises StoreUnavailable where it can't be reached, the error that the
        broker answers with, and InvalidArgument for text that is not Unicode."""
        self._generation = self._connection.generation
        command = self._opening().pack().to_pybytes()
        try:
            writer, reader = self._connection.exchange(command)
            frame = Frame.unpack(reader.read_chunk().app_metadata)
        except (StopIteration, pa.ArrowException, OSError, InvalidArgument) as exc:
            raise StoreUnavailable(f"the broker at {self._connection.place} did not open {self._name}: {exc}") from exc
        if frame.verb == "error":
            raise error_from_json(frame.fields.get("error"))
        self._on_opened(frame)
        with self._changed:
            self._writer, self._reader = writer, reader
            self._token = Fields(frame.fields).optional_text("session")
            self._opened += 1
            self._inbox.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._receive_and_reopen()
        except Exception as exc:  # an error of this process, such as too little memory: end the waiting requests
            with self._changed:
                self._writer = None
                self._error = AnabranchError(f"{self._name} has ended: {exc}")
                self._changed.notify_all()

    def _receive_and_reopen(self) -> None:
        while True:
            error = self._receive()
            with self._changed:
                lost, self._writer = self._writer, None
                self._lost_at = self._runtime.clock.monotonic()
                self._changed.notify_all()
            if lost is not None:
                self._hang_up(lost)
            if self._closed or not self._reopened(error):
                return

    def _hang_up(self, writer: Any) -> None:
        """End an exchange that is no longer needed, without waiting for the broker."""
        if self._reader is not None and not self._closed:
            with suppress(pa.ArrowException, OSError):
                self._reader.cancel()
        with suppress(pa.ArrowException, OSError):
            writer.close()

    def _reopened(self, error: Exception) -> bool:
        """Open it again, on another broker if there is one. Returns False where it has ended."""
        self._connection.lost(error, self._generation)
        retries = AGAIN.begin(self._runtime)
        while not self._closed:
            try:
                self._open()
            except StoreUnavailable as exc:
                self._connection.lost(exc, self._generation)
                retries.again(exc)
            except (AnabranchError, TimeoutError) as exc:
                with self._changed:
                    self._error = exc
                    self._changed.notify_all()
                return False
            else:
                SESSION_REOPENED(session=self._name, place=self._connection.place, error=error)
                return True
        return False

    def _receive(self) -> Exception:
        """Receive until the connection is lost; returns why."""
        reader, opened = self._reader, self._opened
        try:
            while True:
                frame = Frame.unpack(reader.read_chunk().app_metadata)
                if frame.verb == "ended":
                    return StoreUnavailable("the broker ended the session")
                if frame.verb == "probe":
                    self._send(Frame("progress", 0, {} if self._progress is None else self._progress()), opened)
                    continue
                with self._changed:
                    self._inbox.append(frame)
                    self._changed.notify_all()
        except (StopIteration, pa.ArrowException, OSError, InvalidArgument, ConnectionLost) as exc:
            return exc
