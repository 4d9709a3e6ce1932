"""Building a stream of parts, all of which become visible in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from anabranch.catalog.port import Writing
from anabranch.core.display import Displayed
from anabranch.core.stitch import JoinResult
from anabranch.errors import AnabranchError, Closed, InvalidArgument, LeaseExpired, StreamNotFound
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.stream import StreamInfo
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ids import token
from anabranch.streams.algebra.stitch import stitch_streams
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_free, need_info, range_stream
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.ephemeral.keep_alive import Held
from anabranch.streams.manager import Name, Source, Streams
from anabranch.streams.requests import Result
from anabranch.writing.writer import Writer


class StreamBuilder(Displayed):
    """Collects the parts of the stream `into`, in order; leaving the context without an exception stitches them once.

        with store.streams.builder("iot/all") as parts:
            parts.add("iot/january")
            with parts.writer() as writer:
                writer.write({"device": "a", "celsius": 3.5})
            parts.add(ab.StreamRange("iot/february", start, end))

    A written part is an unnamed ephemeral stream that this process holds. It is invisible until the parts are stitched.
    If they never are, it is deleted when the context ends, or by upkeep after a crash. Parts are identified by
    stream id, so a rename in between has no effect; an edge of a range (`ab.TAIL`) is resolved when the parts are
    stitched. For one thread.
    """

    def __init__(
        self,
        streams: Streams,
        ephemeral: Ephemeral,
        changes: Changes,
        open_writer: Callable[[StreamName], Writer],
        into: Name,
        request: str | None,
    ) -> None:
        self._streams = streams
        self._ephemeral = ephemeral
        self._changes = changes
        self._open_writer = open_writer
        self._into = StreamName.parse(into)
        self._request = request
        self._parts: list[StreamRange] = []
        self._held: list[Held] = []
        self._writers: list[Writer] = []
        self._first: StreamInfo | None = None
        self._joined: JoinResult | None = None
        self._ended = False

    def __enter__(self) -> StreamBuilder:
        if self._request is None:  # with a request id, an earlier call may have created it
            with self._changes.catalog.reading() as txn:
                need_scope(txn, self._into.scope)
                need_free(txn, self._into)
        return self

    @property
    def joined(self) -> JoinResult:
        """The result, after the context: where each part's events lie now, in the order of the parts."""
        if self._joined is None:
            raise InvalidArgument(f"'{self._into}' does not exist yet: its parts are stitched when the with block ends")
        return self._joined

    def add(self, source: Source) -> None:
        """Add a stream, or a range of one, as the next part; it may be added several times. Raises StreamNotFound,
        InvalidCut."""
        self._require_open()
        part = StreamRange.of(source)
        with self._changes.catalog.reading() as txn:
            info = need_info(txn, range_stream(part))
        self._add_part(info, replace(part, stream=info.id))

    def writer(
        self, *, schema: Any = None, key: str | None = None, time: str | None = None, scaling: Fixed | int = 1
    ) -> Writer:
        """A writer for the next part. The part holds what the writer has written by the end of the context. Without a
        `schema`, a later part has the columns of the first part, and the first part is raw. The arguments are those of
        `Streams.create`."""
        self._require_open()
        if schema is None and key is None and time is None and self._first is not None and not self._first.schema.raw:
            own = self._first.schema
            schema, key, time = own.columns, own.key, own.time
        held = self._ephemeral.create(schema=schema, key=key, time=time, scaling=scaling)
        self._held.append(held)
        writer = self._open_writer(held.name)
        self._writers.append(writer)
        self._add_part(self._streams.get(held.name), StreamRange(held.id))
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
                with suppress(AnabranchError):  # its unwritten events are not needed
                    writer.close()
            for held in self._held:
                with suppress(AnabranchError):  # then it is removed when its lease has expired
                    held.leave()

    def _stitch(self) -> None:
        if not self._parts:
            raise InvalidArgument(f"can't build '{self._into}' without parts: add one, or write one")
        stream, written = self._changes.new_id(), {held.id for held in self._held}

        def change(txn: Writing, now: Micros) -> Result:
            return stitch_streams(txn, self._parts, self._into, stream, now, drop=written).to_json()

        parts_text = ",".join("written" if part.stream in written else str(part) for part in self._parts)
        # The written parts would be lost without a retry, so there is always a request id.
        request = self._request or token(self._changes.runtime.ids)
        try:
            result = self._changes.apply(f"build {self._into} of {parts_text}", request, change, retry=True)
        except StreamNotFound as exc:
            if any(exc.stream == f"{ident:016x}" for ident in written):
                reason = f"a written part of '{self._into}' was deleted: this process did not renew its hold in time"
                raise LeaseExpired(reason) from exc
            raise
        self._joined = JoinResult.from_json(result)

    def _add_part(self, info: StreamInfo, part: StreamRange) -> None:
        self._first = self._first or info
        self._parts.append(part)

    def _require_open(self) -> None:
        if self._ended:
            raise Closed("builder")
