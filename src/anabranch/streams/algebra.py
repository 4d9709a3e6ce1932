"""Streams like files: the verbs that make streams of streams, as methods of the stream manager.

None of them touches an event: each is one transaction that changes names, segments and spans. So what it costs depends
on how many of these there are, never on how much was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.catalog.port import Catalog, Writing
from anabranch.core.copy import Copied
from anabranch.core.stitch import Joined
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import StreamInfo
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ports import Runtime
from anabranch.streams.append_stream import append_stream
from anabranch.streams.copy import copy_stream
from anabranch.streams.copy_scope import copy_page, prepare_scope
from anabranch.streams.find import need_info
from anabranch.streams.rename import rename_stream
from anabranch.streams.requests import Result
from anabranch.streams.stitch import stitch_streams

Name = str | StreamName
Source = Name | StreamRange


class Algebra:
    """What `Streams` does with whole streams. Each call is durable when it returns, and takes a `request` id: asked
    again with the same id, it does nothing and returns its first result."""

    _catalog: Catalog
    _runtime: Runtime

    def _change(
        self,
        operation: str,
        request: str | None,
        act: Callable[[Writing, Micros], Result],
        *,
        on: StreamName | None = None,
    ) -> Result:
        """Act in one transaction, once for a request id."""
        raise NotImplementedError

    def copy(self, source: Source, target: Name, *, request: str | None = None) -> Copied:
        """A copy of a stream, or of a range of one, as a new stream: same columns, tags, epochs, segments and offsets.

        Later writes to either never show in the other. The copy can be written to, also where the source is sealed;
        writers begin anew there. Asked again with the same arguments it changes nothing and returns the same. Raises
        StreamExists where `target` is something else, InvalidCut, Truncated.
        """
        part, full = StreamRange.of(source), StreamName.parse(target)
        stream = self._new_id()

        def act(txn: Writing, now: Micros) -> Result:
            return copy_stream(txn, part, full, stream, now).to_json()

        return Copied.from_json(self._change(f"copy {part} {full}", request, act))

    def append(self, source: Source, onto: Name, *, request: str | None = None) -> Joined:
        """Let the events of a stream, or of a range of one, follow the last event of `onto`.

        Writers and readers of `onto` go on by themselves, behind what was appended; the order of each key is kept. The
        source stays as it is. Its events lie in new segments at their old offsets: the answer says where. If `onto`
        was sealed it stays so. Raises SchemaMismatch where columns of one name differ in type, or keys or times are
        other columns; InvalidCut, Truncated. Without a request id, asking twice appends twice.
        """
        part, full = StreamRange.of(source), StreamName.parse(onto)

        def act(txn: Writing, now: Micros) -> Result:
            return append_stream(txn, part, full, now).to_json()

        return Joined.from_json(self._change(f"append {part} onto {full}", request, act))

    def stitch(
        self, sources: Sequence[Source], *, into: Name, keep_sources: bool = True, request: str | None = None
    ) -> Joined:
        """A new stream of all events of the first source, then all of the second, and so on.

        Sources are streams or ranges; one may occur several times. Without `keep_sources` they are deleted in the same
        transaction, and `into` may be one of their names. Raises StreamExists, and as `append`.
        """
        parts, full = [StreamRange.of(source) for source in sources], StreamName.parse(into)
        if not parts:
            raise InvalidArgument("a stitch takes at least one stream")
        stream = self._new_id()

        def act(txn: Writing, now: Micros) -> Result:
            return stitch_streams(txn, parts, full, stream, now, keep_sources=keep_sources).to_json()

        gone = "" if keep_sources else " instead"
        return Joined.from_json(self._change(f"stitch {','.join(map(str, parts))} {full}{gone}", request, act))

    def rename(self, stream: Name, name: Name, *, request: str | None = None) -> StreamInfo:
        """Give a stream another name, in its scope or in another. Readers and writers that are open go on.

        From then on the old name answers StreamRenamed, which carries the new one, until a stream is made under it.
        Raises StreamExists, ScopeNotFound.
        """
        old, new = StreamName.parse(stream), StreamName.parse(name)

        def act(txn: Writing, now: Micros) -> Result:
            return {"stream": rename_stream(txn, old, new, now)}

        result = self._change(f"rename {old} {new}", request, act)
        with self._catalog.reading() as txn:
            return need_info(txn, StreamId(int(str(result["stream"]))))

    def move(self, stream: Name, scope: str, *, request: str | None = None) -> StreamInfo:
        """Rename a stream into another scope, where it has the same name. Raises as `rename`."""
        full = StreamName.parse(stream)
        return self.rename(full, StreamName(check_scope(scope), full.name), request=request)

    def copy_scope(
        self, source: str, target: str, *, internal: bool = False, request: str | None = None
    ) -> list[Copied]:
        """Copy all streams of a scope, the store's own only with `internal`, into another, which is made if need be.

        A stream is copied whole or not at all. Where the call was interrupted, or refused because a name is taken,
        asking again goes on: what was copied stays as it is. Raises StreamExists.
        """
        check_scope(target)

        def begin(txn: Writing, now: Micros) -> Result:
            prepare_scope(txn, source, target, now)
            return {}

        self._change("", None, begin)
        copies: list[Copied] = []
        after: StreamName | None = None
        while True:

            def act(txn: Writing, now: Micros, after: StreamName | None = after) -> Result:
                found, last = copy_page(
                    txn,
                    source,
                    target,
                    now,
                    after=after,
                    internal=internal,
                    request=request,
                    new_id=self._new_id,
                )
                return {"copies": [each.to_json() for each in found], "after": None if last is None else str(last)}

            page: dict[str, Any] = self._change("", None, act)
            copies += [Copied.from_json(each) for each in page["copies"]]
            if page["after"] is None:
                return copies
            after = StreamName.parse(page["after"])

    def _new_id(self) -> StreamId:
        return StreamId(self._runtime.ids.bits(63))
