"""What the calls of group readers and transactions share: requests one by one, each carried out in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from google.protobuf.message import Message

from anabranch import limits
from anabranch.errors import Closed, InvalidArgument
from anabranch.runtime.ids import token
from anabranch.server.grpc.call import GrpcCall
from anabranch.server.grpc.errors import draining

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class GrpcSession:
    """The requests of one call. The coroutine that serves the call has to await `end`, which interrupts work in
    progress in a thread."""

    def __init__(self, call: GrpcCall, kind: type[Message], *, silent_s: float | None) -> None:
        """`kind` is the message type of a request. The session of a caller who sends none for `silent_s` seconds is
        ended."""
        self.call = call
        self.token = token(call.front.store.runtime.ids)
        """Sent with `opened`. A caller who sends the token with each request has a request refused that the network
        repeats in another session."""
        self._kind = kind
        self._silent_s = silent_s
        self._loop = asyncio.get_running_loop()
        self.owing = 0
        """How many requests are unanswered. A caller who waits for an answer may be silent."""
        self.blocked = False
        """True while requests can't be answered before the caller sends another one, so it may not be silent."""
        self._turn = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._interrupted = False
        self._wake: Callable[[], None] = lambda: None
        self._authorize: Callable[[], None] = lambda: None
        self._authorized_at = self._loop.time()
        self._question: tuple[str, asyncio.Future[None]] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._forget_drain: Callable[[], None] = lambda: None

    def begin(self, *, wake: Callable[[], None], authorize: Callable[[], None]) -> None:
        """Begin the session once its reader or transaction is open. `wake` makes a waiting request check
        `interrupted()`; `authorize` checks the caller's rights again."""
        self._wake, self._authorize = wake, authorize
        self._forget_drain = self.call.front.broker.drain.on_start(self.interrupt)

    def interrupt(self) -> None:
        """Have the request in progress end. May be called in any thread."""
        self._interrupted = True
        self._wake()

    def interrupted(self) -> bool:
        """True if a request that waits should return: the caller is gone, or the broker ends."""
        return self._interrupted

    async def first(self, name: str) -> Any:
        """The first request, which has to be `name`. Raises InvalidArgument."""
        request = await self.next()
        if request is None or request[0] != name:
            raise InvalidArgument(f"expected '{name}' as the first request")
        return request[1]

    async def next(self) -> tuple[str, Any] | None:
        """The next request, by its name; None once the caller sends no more. Raises InvalidArgument, also for a request of
        another session, TimeoutError, and the error of `draining` if the broker ends."""
        receive = asyncio.ensure_future(self.call.receive(self._kind))
        heard_at = self._loop.time()
        try:
            while not (await asyncio.wait((receive,), timeout=limits.SESSION_WATCH_S))[0]:
                if self.call.front.draining:
                    raise draining()
                if self.owing and not self.blocked and self._question is None:
                    heard_at = self._loop.time()
                elif self._silent_s is not None and self._loop.time() - heard_at > self._silent_s:
                    raise TimeoutError(f"the caller sent no request for {self._silent_s:g} s")
            message: Any = await receive
        finally:
            receive.cancel()
        if message is None:
            return None
        if message.session not in ("", self.token):
            raise InvalidArgument("the request belongs to another session")
        name = message.WhichOneof("request")
        if name is None:
            raise InvalidArgument("expected a request in the message")
        return name, getattr(message, name)

    async def run(self, work: Callable[[], T]) -> T:
        """Carry out a request in a thread, one at a time; the caller's rights are checked again after
        `limits.SESSION_AUTHORIZE_S`."""
        async with self._turn:
            return await self.run_beside(work)

    async def run_beside(self, work: Callable[[], T]) -> T:
        """Like `run`, also while another request waits for events."""
        if self.call.front.draining:
            raise draining()
        if self._loop.time() - self._authorized_at > limits.SESSION_AUTHORIZE_S:
            await self.call.front.run(self._authorize)
            self._authorized_at = self._loop.time()
        running = self.call.front.run_session(work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.give_up()
            with suppress(Exception):  # the caller is gone: nobody gets the error
                await running
            raise
        except Closed:
            if self.call.front.draining:
                raise draining() from None
            raise

    def ask(self, message: Message, name: str) -> None:
        """Ask the caller something in the middle of a request, and wait for the answer, a request `name`, which is passed
        to `answered`. For the thread that carries it out. Raises Closed if the caller is gone."""

        async def asked() -> None:
            if self._interrupted:
                raise Closed("session")
            self._question = (name, self._loop.create_future())
            self._asking = asyncio.current_task()
            try:
                await self.send(message)
                await self._question[1]
            finally:
                self._question = self._asking = None

        future = asyncio.run_coroutine_threadsafe(asked(), self._loop)
        try:
            future.result()
        except CancelledError:
            raise Closed("session") from None

    def answered(self, name: str) -> None:
        """The caller has sent the request `name`, as an answer. Raises InvalidArgument if it was not asked."""
        if self._question is None or self._question[0] != name or self._question[1].done():
            raise InvalidArgument(f"'{name}' is not expected here")
        self._question[1].set_result(None)

    async def send(self, *messages: Message | bytes) -> None:
        """Send an answer, in one message or several."""
        async with self._sending:
            for message in messages:
                await self.call.send(message)

    def give_up(self) -> None:
        """Have the request in progress end, also one that waits for the caller. Call it in the event loop's thread."""
        self.interrupt()
        if self._asking is not None:
            self._asking.cancel()

    async def end(self, release: Callable[[], None]) -> None:
        """Interrupt the request in progress, and then call `release` in a thread, also if this coroutine is
        cancelled."""
        self._forget_drain()
        self.give_up()

        async def released() -> None:
            async with self._turn:
                await self.call.front.run_session(release)

        await asyncio.shield(asyncio.ensure_future(released()))
