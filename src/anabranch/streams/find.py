"""Finding streams by name."""

from __future__ import annotations

from anabranch.catalog.port import Reading
from anabranch.errors import StreamExists, StreamNotFound, StreamRenamed, StreamSealed
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.former import name_now
from anabranch.streams.scope import need_scope


def need_info(txn: Reading, stream: StreamName | StreamId) -> StreamInfo:
    """The stream, by its name, an alias or its id. Raises ScopeNotFound, StreamNotFound, StreamRenamed for a former name."""
    info = txn.stream(stream)
    if info is None:
        if isinstance(stream, StreamName):
            if (now := name_now(txn, stream)) is not None:
                raise StreamRenamed(str(stream), str(now))
            need_scope(txn, stream.scope)
            raise StreamNotFound(str(stream))
        raise StreamNotFound(f"{stream:016x}")
    return info


def need_free(txn: Reading, name: StreamName) -> None:
    """Nothing is called so. Raises StreamExists for the name of a stream, or an alias of one."""
    taken = txn.stream(name)
    if taken is not None:
        raise StreamExists(str(name), None if taken.name == name else str(taken.name))


def need_view(txn: Reading, stream: StreamName | StreamId, *, unsealed: bool = False) -> StreamView:
    """The stream with its segments. Raises StreamNotFound; with `unsealed` StreamSealed."""
    info = need_info(txn, stream)
    if unsealed and info.sealed:
        raise StreamSealed(str(info.name))
    view = txn.view(info.id)
    assert view is not None
    return view


def cuts_of(source: StreamRange) -> tuple[StreamCut | Edge, StreamCut | Edge]:
    """The cuts of a range that was parsed."""
    assert not isinstance(source.start, str)
    assert not isinstance(source.end, str)
    return source.start, source.end


def named(source: StreamRange) -> StreamName | StreamId:
    """What the stream of a range that was parsed is found by."""
    assert not isinstance(source.stream, str)
    return source.stream
