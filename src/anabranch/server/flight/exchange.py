"""One open exchange: a client's requests are answered in order, by one task, while another one receives them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, Closed, InvalidArgument
from anabranch.runtime.ids import token
from anabranch.runtime.log_events import SESSION_FAILED
from anabranch.runtime.ports import Runtime
from anabranch.wire.errors import error_to_json
from anabranch.wire.frames import Frame

CLOSE: Final = "close"
ANSWERED: Final = "answered"
PROGRESS: Final = "progress"


class Session:
    """What a broker holds for one client while the exchange lasts. All calls come from one task, except `interrupt`."""

    probe_s: float = limits.SESSION_PROBE_S
    silent_s: float = limits.SESSION_SILENT_S

    def opened(self) -> Frame:
        """The answer to the request that opened the session."""
        return Frame("opened")

    def call(self, request: Frame) -> Frame:
        """Carry out the request and return the answer. An error that this method raises is sent as the answer."""
        raise NotImplementedError

    def tell(self, message: Frame) -> None:
        """Handle a message that the client sends unasked; by default it is a sign of life."""

    def authorize(self) -> None:
        """Check again that the client may do this. Raises PermissionDenied, Unauthenticated."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Wake a waiting call, so that it checks `Exchange.interrupted`. By default no call waits."""

    def close(self, request: Frame | None) -> None:
        """End the session. `request` is the client's request to close; None if the client is gone."""


class Exchange:
    """The messages of one session. `receive` and `end` are for the task that reads from the client, all else for the
    one that runs the session."""

    def __init__(self, runtime: Runtime, outgoing: Any) -> None:
        """`outgoing` is Flight's writer."""
        self._runtime = runtime
        self._token = token(runtime.ids)  # sent in the first answer; the client repeats it in every message
        self._clock = runtime.clock
        self._outgoing = outgoing
        self._changed = runtime.tasks.condition()
        self._incoming: deque[Frame] = deque()
        self._bytes = 0
        self._ended = False
        self._heard_at = self._clock.monotonic()
        self._waits = True  # True while the broker waits for the client
        self._interrupt: Callable[[], None] = lambda: None

    # the task that reads from the client

    def receive(self, message: pa.Buffer | None) -> bool:
        """Take a message of the client; waits while too many are unanswered. Returns False once the session has
        ended. Raises InvalidArgument, also for a message of another session: a network may repeat what a client sent to
        one broker at another one, where the same request would mean something else."""
        frame = Frame.unpack(message)
        if frame.fields.get("session") != self._token:
            raise InvalidArgument("the message belongs to another session")
        with self._changed:
            self._heard_at = self._clock.monotonic()
            self._incoming.append(frame)
            self._bytes += _size(frame)
            self._changed.notify_all()
        self._interrupt()
        with self._changed:
            while self._bytes > limits.SESSION_QUEUE_BYTES_MAX and not self._ended:
                self._changed.wait()
            return not self._ended

    def end(self) -> None:
        """End the exchange because the client is gone, or as if it were."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._interrupt()

    @property
    def silent_s(self) -> float:
        """For how long the client has owed a sign of life; 0 while its request is being answered."""
        return self._clock.monotonic() - self._heard_at if self._waits else 0.0

    # the task that runs the session

    def interrupted(self) -> bool:
        """True if a waiting call should return: the client has sent another request, or is gone."""
        return self._ended or any(frame.verb != PROGRESS for frame in list(self._incoming))

    @property
    def closing(self) -> bool:
        """True if the client is gone, or has requested to close the session."""
        return self._ended or any(frame.verb == CLOSE for frame in list(self._incoming))

    def ask(self, verb: str, **fields: Any) -> Frame:
        """Ask the client something in the middle of its request. Raises Closed if the client is gone, or sends
        another request instead of the answer."""
        self.send(Frame(verb, 0, fields))
        self._expect()
        while (frame := self._next(None)) is not None:
            if frame.verb == ANSWERED:
                self._waits = False
                return frame
            if frame.verb != PROGRESS:
                with self._changed:
                    self._incoming.appendleft(frame)
                    self._bytes += _size(frame)
                break
        raise Closed("session")

    def send_opened(self, frame: Frame) -> None:
        """Send the first answer, with the session's token. Raises Closed where the client is gone."""
        self.send(Frame(frame.verb, frame.number, {**frame.fields, "session": self._token}, frame.data))

    def send(self, frame: Frame) -> None:
        """Send a message. Raises Closed where the client is gone."""
        message, waits = frame.pack(), self._waits
        self._expect()
        try:
            self._outgoing.write_metadata(message)
        except (pa.ArrowException, OSError) as exc:
            self.end()
            raise Closed("session") from exc
        self._waits = waits

    def _expect(self) -> None:
        """Note that the broker waits for the client from now on."""
        if not self._waits:
            self._heard_at, self._waits = self._clock.monotonic(), True

    def run(self, session: Session) -> None:
        """Answer requests until the session ends; closes it."""
        self._interrupt = session.interrupt
        last: Frame | None = None
        try:
            with suppress(Closed):
                last = self._serve(session)
        finally:
            self._close(session, last)

    def _close(self, session: Session, request: Frame | None) -> None:
        # Without a pending request, ask the client, if it still listens, to continue on another broker.
        answer = Frame("ended") if request is None else Frame("closed", request.number)
        try:
            session.close(request)
        except AnabranchError as exc:
            answer = Frame("error", answer.number, {"error": error_to_json(exc)})
        self.end()
        with suppress(Closed):
            self.send(answer)

    def _serve(self, session: Session) -> Frame | None:
        """Answer requests. Returns the request to close the session; None if the client is gone."""
        authorized_at = self._clock.monotonic()
        while True:
            frame = self._next(session.probe_s)
            if frame is None:
                if self._ended or self.silent_s > session.silent_s:
                    return None
                self.send(Frame("probe"))
                continue
            if frame.verb == CLOSE:
                return frame
            try:
                if self._clock.monotonic() - authorized_at > limits.SESSION_AUTHORIZE_S:
                    session.authorize()
                    authorized_at = self._clock.monotonic()
                self._answer(session, frame)
            except Closed:
                raise
            except Exception as exc:
                if not isinstance(exc, AnabranchError | TimeoutError):
                    SESSION_FAILED(verb=frame.verb, error=exc, traceback=exc)
                self.send(Frame("error", frame.number, {"error": error_to_json(exc)}))

    def _answer(self, session: Session, frame: Frame) -> None:
        if frame.number == 0:
            session.tell(frame)
            return
        self._waits = False
        try:
            answer = session.call(frame)
        finally:
            self._expect()
        self.send(Frame(answer.verb, frame.number, answer.fields, answer.data))

    def _next(self, timeout_s: float | None) -> Frame | None:
        """The next message; None after `timeout_s`, or once the client is gone."""
        with self._changed:
            if not self._incoming and not self._ended:
                self._changed.wait(timeout_s)
            while timeout_s is None and not self._incoming and not self._ended:
                self._changed.wait()
            if self._ended or not self._incoming:
                return None
            frame = self._incoming.popleft()
            self._bytes -= _size(frame)
            self._changed.notify_all()
            return frame


def unknown(frame: Frame) -> InvalidArgument:
    """The error for a request that a session does not have."""
    return InvalidArgument(f"a session of this kind has no request '{frame.verb}'")


def _size(frame: Frame) -> int:
    return 256 + (0 if frame.data is None else frame.data.size)
