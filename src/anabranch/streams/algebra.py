"""Streams like files: the verbs that make streams of streams, as methods of the stream manager.

None of them touches an event: each is one transaction that changes names, segments and spans. So what it costs depends
on how many of these there are, never on how much was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.catalog.port import Writing
from anabranch.core.copy import Copied
from anabranch.core.stitch import Joined
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.streams.append_stream import append_stream
from anabranch.streams.arguments import Which, shown, which
from anabranch.streams.change import Changes
from anabranch.streams.copy import copy_stream
from anabranch.streams.requests import Result
from anabranch.streams.stitch import stitch_streams

Name = str | StreamName
Source = Name | StreamRange


class Algebra(Changes):
    """What `Streams` does with whole streams. Each call is durable when it returns, and takes a `request` id: asked
    again with the same id, it does nothing and returns its first result."""

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

    def append(self, source: Source, onto: Which, *, request: str | None = None) -> Joined:
        """Let the events of a stream, or of a range of one, follow the last event of `onto`.

        Writers and readers of `onto` go on by themselves, behind what was appended; the order of each key is kept. The
        source stays as it is. Its events lie in new segments at their old offsets: the answer says where. If `onto`
        was sealed it stays so. Raises SchemaMismatch where columns of one name differ in type, or keys or times are
        other columns; InvalidCut, Truncated. Without a request id, asking twice appends twice.
        """
        part, full = StreamRange.of(source), which(onto)

        def act(txn: Writing, now: Micros) -> Result:
            return append_stream(txn, part, full, now).to_json()

        return Joined.from_json(self._change(f"append {part} onto {shown(full)}", request, act))

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
