"""Finding streams by name."""

from __future__ import annotations

from difflib import get_close_matches

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.errors import StreamExists, StreamNotFound, StreamRenamed, StreamSealed
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.directory.former_names import current_name
from anabranch.streams.directory.scopes import need_scope


def need_info(txn: Reading, stream: StreamName | StreamId, *, suggest: bool = False) -> StreamInfo:
    """The stream with this name, alias or id. Raises ScopeNotFound, StreamNotFound, StreamRenamed for a former name.
    With `suggest` the errors name streams or scopes with similar names. Other streams are looked up for them, so
    `suggest` can't be used in a transaction on one stream."""
    info = txn.stream(stream)
    if info is None:
        if isinstance(stream, StreamName):
            if (now := current_name(txn, stream)) is not None:
                raise StreamRenamed(str(stream), str(now))
            need_scope(txn, stream.scope, suggest=suggest)
            if not suggest:
                raise StreamNotFound(str(stream))
            page = txn.streams(stream.scope, limit=limits.CATALOG_PAGE_ROWS)
            names = [str(info.name) for info in page if not info.name.internal]
            raise StreamNotFound(str(stream), get_close_matches(str(stream), names, n=2))
        raise StreamNotFound(f"{stream:016x}")
    return info


def need_free(txn: Reading, name: StreamName) -> None:
    """Check that the name is free. Raises StreamExists for the name of a stream, or an alias of one."""
    existing = txn.stream(name)
    if existing is not None:
        raise StreamExists(str(name), None if existing.name == name else str(existing.name))


def need_view(
    txn: Reading, stream: StreamName | StreamId, *, unsealed: bool = False, suggest: bool = False
) -> StreamView:
    """The stream with its segments. Raises what `need_info` raises; with `unsealed` StreamSealed."""
    info = need_info(txn, stream, suggest=suggest)
    if unsealed and info.sealed:
        raise StreamSealed(str(info.name))
    view = txn.view(info.id)
    assert view is not None
    return view


def range_cuts(source: StreamRange) -> tuple[StreamCut | Edge, StreamCut | Edge]:
    """The cuts of a parsed range."""
    assert not isinstance(source.start, str)
    assert not isinstance(source.end, str)
    return source.start, source.end


def range_stream(source: StreamRange) -> StreamName | StreamId:
    """The name or id of the stream of a parsed range."""
    assert not isinstance(source.stream, str)
    return source.stream
