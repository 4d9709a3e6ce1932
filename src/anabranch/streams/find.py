"""Finding streams by name."""

from __future__ import annotations

from anabranch.catalog.port import Reading
from anabranch.errors import ScopeNotFound, StreamNotFound, StreamRenamed, StreamSealed
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.streams.former import name_now


def need_info(txn: Reading, stream: StreamName | StreamId) -> StreamInfo:
    """The stream. Raises ScopeNotFound, StreamNotFound, StreamRenamed for a former name."""
    info = txn.stream(stream)
    if info is None:
        if isinstance(stream, StreamName):
            if (now := name_now(txn, stream)) is not None:
                raise StreamRenamed(str(stream), str(now))
            if txn.scope(stream.scope) is None:
                raise ScopeNotFound(stream.scope)
            raise StreamNotFound(str(stream))
        raise StreamNotFound(f"{stream:016x}")
    return info


def need_view(txn: Reading, stream: StreamName | StreamId, *, unsealed: bool = False) -> StreamView:
    """The stream with its segments. Raises StreamNotFound; with `unsealed` StreamSealed."""
    info = need_info(txn, stream)
    if unsealed and info.sealed:
        raise StreamSealed(str(info.name))
    view = txn.view(info.id)
    assert view is not None
    return view
