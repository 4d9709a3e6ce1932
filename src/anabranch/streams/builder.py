"""Building a stream of parts: nothing of it is seen before all of it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from anabranch.catalog.port import Writing
from anabranch.core.stitch import Joined
from anabranch.errors import AnabranchError, Closed, InvalidArgument, LeaseExpired, StreamNotFound
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.stream import StreamInfo
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ids import token
from anabranch.streams.algebra import Name, Source
from anabranch.streams.find import named, need_free, need_info
from anabranch.streams.holding import Held
from anabranch.streams.manager import Streams
from anabranch.streams.requests import Result
from anabranch.streams.scope import need_scope
from anabranch.streams.stitch import stitch_streams
from anabranch.streams.writer import Writer


class Builder:
    """Collects the parts of the stream `into`, in order; leaving the context without an exception stitches them once.

        with store.streams.builder("iot/all") as parts:
            parts.add("iot/january")
            with parts.writer() as writer:
                writer.write({"device": "a", "celsius": 3.5})
            parts.add(ab.StreamRange("iot/february", start, end))

    A part that is written lies in a nameless ephemeral stream that this process holds: nobody sees it, it becomes a part
    in the transaction that stitches, and it vanishes where that never comes, at the latest when upkeep finds that its
    holder was killed. Parts are known by id, so renaming one meanwhile changes nothing; an edge of a range (`ab.TAIL`)
    is what it is when the parts are stitched. For one thread.
    """

    def __init__(
        self, streams: Streams, open_writer: Callable[[StreamName], Writer], into: Name, request: str | None
    ) -> None:
        self._streams = streams
        self._open_writer = open_writer
        self._into = StreamName.parse(into)
        self._request = request
        self._parts: list[StreamRange] = []
        self._held: list[Held] = []
        self._writers: list[Writer] = []
        self._first: StreamInfo | None = None
        self._joined: Joined | None = None
        self._ended = False

    def __enter__(self) -> Builder:
        if self._request is None:  # one that is asked again may have made it
            with self._streams._catalog.reading() as txn:
                need_scope(txn, self._into.scope)
                need_free(txn, self._into)
        return self

    @property
    def joined(self) -> Joined:
        """What came of it, behind the context: where each part's events lie now, in the order of the parts."""
        if self._joined is None:
            raise InvalidArgument(f"'{self._into}' is not stitched yet: that happens at the end of the with block")
        return self._joined

    def add(self, source: Source) -> None:
        """A stream, or a range of one, is the next part; it may be so again. Raises StreamNotFound, InvalidCut."""
        self._alive()
        part = StreamRange.of(source)
        with self._streams._catalog.reading() as txn:
            info = need_info(txn, named(part))
        self._take(info, replace(part, stream=info.id))

    def writer(
        self, *, schema: Any = None, key: str | None = None, time: str | None = None, scaling: Fixed | int = 1
    ) -> Writer:
        """A writer of the next part, which is what it has written by the end of the context. Without a `schema`, the part
        has the columns of the first part; where it is the first itself, it is raw. The arguments are those of
        `Streams.create`."""
        self._alive()
        if schema is None and key is None and time is None and self._first is not None and not self._first.schema.raw:
            own = self._first.schema
            schema, key, time = own.columns, own.key, own.time
        held = self._streams.ephemeral(schema=schema, key=key, time=time, scaling=scaling)
        self._held.append(held)
        writer = self._open_writer(held.name)
        self._writers.append(writer)
        self._take(self._streams.get(held.name), StreamRange(held.id))
        return writer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        try:
            if error is None:
                for writer in self._writers:
                    writer.close()
                self._stitch()
        finally:
            for writer in self._writers:
                with suppress(AnabranchError):  # nobody wants what it has left
                    writer.close()
            for held in self._held:
                with suppress(AnabranchError):  # then it goes when its lease has run out
                    held.leave()

    def _stitch(self) -> None:
        if not self._parts:
            raise InvalidArgument(f"nothing was added that '{self._into}' could be built of")
        stream, written = self._streams._new_id(), {held.id for held in self._held}

        def act(txn: Writing, now: Micros) -> Result:
            return stitch_streams(txn, self._parts, self._into, stream, now, drop=written).to_json()

        told = ",".join("written" if part.stream in written else str(part) for part in self._parts)
        # What was written is lost if nobody asks again, so this has a request id in any case.
        request = self._request or token(self._streams._runtime.ids)
        try:
            result = self._streams._change(f"build {self._into} of {told}", request, act, insist=True)
        except StreamNotFound as exc:
            if any(exc.stream == f"{ident:016x}" for ident in written):
                why = f"a part of '{self._into}' was taken for abandoned, since this process stood still for too long"
                raise LeaseExpired(why) from exc
            raise
        self._joined = Joined.from_json(result)

    def _take(self, info: StreamInfo, part: StreamRange) -> None:
        self._first = self._first or info
        self._parts.append(part)

    def _alive(self) -> None:
        if self._ended:
            raise Closed("builder")
