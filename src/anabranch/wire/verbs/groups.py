"""The methods of one reader group (`anabranch.groups.group.ReaderGroup`) as verbs: `group.unread` is
`store.groups.open(group).unread()`. `ident` is the id of the stream that holds the group's state, from `group.open`, so
that a handle of a deleted group is not one of a new group of its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from anabranch import limits
from anabranch.core.group import Checkpoint
from anabranch.errors import GroupNotFound
from anabranch.groups.checkpoints import End
from anabranch.groups.group import ReaderGroup
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place
from anabranch.store.facade import Store
from anabranch.wire.verbs.needs import Arguments, Need, Needs, Operation
from anabranch.wire.verbs.verb import Opened, StoreVerb


def open_group(
    store: Store,
    group: str,
    streams: Sequence[str] | str | None = None,
    start: Place | Mapping[str, Place] = HEAD,
    end: End = None,
    by: TimeKind = "append",
    lease_s: float = limits.READER_LEASE_US / 1e6,
    refresh_s: float = limits.READER_REFRESH_US / 1e6,
    checkpoint_s: float | None = None,
) -> StreamId:
    """See `Groups.open`."""
    return store.groups.open(
        group,
        streams=streams,
        start=start,
        end=end,
        by=by,
        lease_s=lease_s,
        refresh_s=refresh_s,
        checkpoint_s=checkpoint_s,
    ).id


def checkpoint(
    store: Store,
    group: str,
    name: str,
    timeout_s: float = 60.0,
    begun: bool = False,
    ident: StreamId | None = None,
) -> Checkpoint:
    """See `ReaderGroup.checkpoint`. Waits at most `limits.REMOTE_WAIT_S`: a client asks again, with `begun`, and gets
    one that was completed meanwhile."""
    found = _group(store, group, ident)
    if begun:
        for each in found.checkpoints:
            if each.name == name:
                return each
    return found.checkpoint(name, timeout_s=min(timeout_s, limits.REMOTE_WAIT_S))


def generate_cut(
    store: Store, group: str, timeout_s: float = 60.0, ident: StreamId | None = None
) -> dict[str, StreamCut]:
    """See `ReaderGroup.generate_cut`. Waits at most `limits.REMOTE_WAIT_S`: a client asks again."""
    return _group(store, group, ident).generate_cut(timeout_s=min(timeout_s, limits.REMOTE_WAIT_S))


def delete(store: Store, group: str, ident: StreamId | None = None) -> None:
    """See `ReaderGroup.delete`. A group that does not exist is ignored."""
    with suppress(GroupNotFound):
        _group(store, group, ident).delete()


def _group(store: Store, group: str, ident: StreamId | None = None) -> ReaderGroup:
    found = store.groups.open(group)
    if ident is not None and found.id != ident:
        raise GroupNotFound(group)
    return found


def _on_group(operation: Operation) -> Needs:
    """The operation on the group in the argument `group`."""
    return lambda arguments: [Need(operation, "new", arguments.get("group"))]


def _to_open(arguments: Arguments) -> list[Need]:
    """Creating a group needs the right to write the group and to read its streams; opening it needs the right to read it."""
    wanted = arguments.get("streams")
    if wanted is None:
        return _on_group("read")(arguments)
    several = [wanted] if isinstance(wanted, str) else wanted
    return [Need("write", "new", arguments.get("group")), *(Need("read", "stream", each) for each in several)]


def _to_reset(arguments: Arguments) -> list[Need]:
    wanted = arguments.get("streams") or ()
    several = [wanted] if isinstance(wanted, str) else wanted
    return [*_on_group("write")(arguments), *(Need("read", "stream", each) for each in several)]


_GROUP: Final = Opened(ReaderGroup, _group)

GROUP_VERBS: Final = (
    StoreVerb("group.cancel_checkpoint", _on_group("write"), of=_GROUP),
    StoreVerb("group.checkpoint", _on_group("write"), run=checkpoint),
    StoreVerb("group.checkpoints", _on_group("read"), of=_GROUP, changes=False),
    StoreVerb("group.cut", _on_group("read"), of=_GROUP, changes=False),
    StoreVerb("group.delete", _on_group("manage"), run=delete),
    StoreVerb("group.distribution", _on_group("read"), of=_GROUP, changes=False),
    StoreVerb("group.generate_cut", _on_group("write"), run=generate_cut),
    StoreVerb("group.open", _to_open, run=open_group),
    StoreVerb("group.reader_offline", _on_group("write"), of=_GROUP),
    StoreVerb("group.readers", _on_group("read"), of=_GROUP, changes=False),
    StoreVerb("group.reset", _to_reset, of=_GROUP),
    StoreVerb("group.rewind", _on_group("write"), of=_GROUP),
    StoreVerb("group.streams", _on_group("read"), of=_GROUP, changes=False),
    StoreVerb("group.time_window", _on_group("read"), of=_GROUP, changes=False),
    StoreVerb("group.unread", _on_group("read"), of=_GROUP, changes=False),
)
