"""Forks: copies of what a stream holds up to an offset, by metadata alone.

While a stream has forks, its name stays in use. If such a stream is deleted, it is emptied and closed, and answers 410.
It is removed together with its last fork."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.datastructures import Headers

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.codec import stream_id_text
from anabranch.catalog.state.lineage import FORK, Fork
from anabranch.errors import InvalidArgument, StreamExists, StreamNotFound
from anabranch.model.cut import HEAD, TAIL, StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.model.stream_range import StreamRange
from anabranch.server.http.durable_streams.offsets import offset_of
from anabranch.server.http.problem import HttpRefusal
from anabranch.store.facade import Store
from anabranch.streams.algebra.copy import copy_stream
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.streams.lifecycle.evolve import tag_stream
from anabranch.streams.requests import Result
from anabranch.streams.segments import seal_stream, truncate_stream

_DELETED: Final = "durable.deleted"
_SUB_OFFSET: Final = re.compile(r"0|[1-9][0-9]{0,17}")


class StreamGone(HttpRefusal):
    """The stream is deleted, and its name is in use until its forks are deleted too."""

    def __init__(self, name: str) -> None:
        super().__init__(
            410, "stream_gone", f"'{name}' is deleted; its name is free again once its forks are deleted too"
        )


class ForkRequest(NamedTuple):
    """The fork that a PUT requests: `source` is a stream's name; `offset` None stands for its tail."""

    source: str
    offset: int | None
    sub_offset: int


def requested_fork(headers: Headers) -> ForkRequest | None:
    """The fork that the headers request; None if they request none. Raises InvalidArgument."""
    path = headers.get("stream-forked-from")
    offset, sub_offset = headers.get("stream-fork-offset"), headers.get("stream-fork-sub-offset")
    if path is None:
        if offset is not None or sub_offset is not None:
            raise InvalidArgument("Stream-Fork-Offset and Stream-Fork-Sub-Offset require Stream-Forked-From")
        return None
    if sub_offset is not None and not _SUB_OFFSET.fullmatch(sub_offset):
        raise InvalidArgument(f"expected Stream-Fork-Sub-Offset as an integer of at least 0, got '{sub_offset:.50}'")
    if int(sub_offset or 0) and offset is None:
        raise InvalidArgument("Stream-Fork-Sub-Offset requires Stream-Fork-Offset")
    return ForkRequest(_source(path), None if offset is None else offset_of(offset), int(sub_offset or 0))


def fork_of(store: Store, stream: StreamId) -> Fork | None:
    """What the stream is a fork of; None if it is not a fork."""
    with store.catalog.reading() as reading:
        return reading.state(FORK, stream)


def make_fork(store: Store, target: StreamName, fork: Fork, end: StreamCut, tags: dict[str, str]) -> None:
    """Create the fork, with these tags. Raises StreamExists, StreamNotFound, Truncated, and StreamGone for a source that
    was deleted."""
    made = store.changes.new_id()

    def act(txn: Writing, now: Micros) -> Result:
        source = need_info(txn, fork.source)
        if is_deleted(source):
            raise StreamGone(str(source.name))
        if copy_stream(txn, StreamRange.of(StreamRange(fork.source, HEAD, end)), target, made, now).copy != made:
            raise StreamExists(str(target))
        tag_stream(txn, need_info(txn, made), tags, now)
        txn.put_state(FORK, made, fork)
        return {}

    store.changes.apply(f"fork {target}", None, act)


def is_deleted(info: StreamInfo) -> bool:
    """Whether the stream was deleted while it had forks."""
    return _DELETED in info.tags


def has_forks(store: Store, stream: StreamId) -> bool:
    """Whether there is a fork of the stream."""
    with store.catalog.reading() as reading:
        return _has_forks(reading, stream)


def delete(store: Store, stream: StreamId) -> bool:
    """Delete a stream, and those before it that were deleted and have no other fork. Returns False if it keeps its name in
    use, since it has forks. Raises StreamNotFound."""

    def act(txn: Writing, now: Micros) -> Result:
        info = need_info(txn, stream)
        kept = _has_forks(txn, stream)
        if not kept:
            _delete_chain(txn, stream, now)
        elif not is_deleted(info):
            truncate_stream(txn, need_view(txn, stream), TAIL, now)
            seal_stream(txn, need_view(txn, stream), now)
            tag_stream(txn, need_info(txn, stream), {**info.tags, _DELETED: "true"}, now)
        return {"kept": kept}

    result = store.changes.apply(f"delete {stream:016x}", None, act)
    store.companions.sweep()
    return not result["kept"]


def _delete_chain(txn: Writing, stream: StreamId, now: Micros) -> None:
    following: StreamId | None = stream
    while following is not None:
        fork = txn.state(FORK, following)
        delete_stream(txn, following, now)
        following = None
        if fork is not None:
            try:
                source = need_info(txn, fork.source)
            except StreamNotFound:  # it was deleted by its id, as any stream
                return
            if is_deleted(source) and not _has_forks(txn, fork.source):
                following = fork.source


def _has_forks(txn: Reading, stream: StreamId) -> bool:
    return bool(txn.states_found(FORK, stream_id_text(stream), limit=1))


def _source(path: str) -> str:
    """The stream of `Stream-Forked-From`: the path of its URL, or what follows `/streams` in it. Raises InvalidArgument."""
    parts = path.strip("/").split("/")
    if parts[0] == "streams" and len(parts) > 2:
        parts = parts[1:]
    if len(parts) < 2:
        raise InvalidArgument(f"expected Stream-Forked-From as the path of a stream, got '{path:.100}'")
    return f"{parts[0]}/{'.'.join(parts[1:])}"
