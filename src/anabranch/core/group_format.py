"""Encodes a group's shared state as bytes: JSON with a format version. `docs/explanation/formats.md` describes the
fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from anabranch import limits
from anabranch.core.group import Checkpoint, GroupState, Member, Offsets
from anabranch.core.json_text import parse_json
from anabranch.errors import CorruptStore, FormatTooNew
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.position import StreamSegment

_FORMAT: Final = 2  # 1 had at most one pending checkpoint, as `checkpoint`


class GroupStateCodec:
    """Encodes group states for a `StateSynchronizer`."""

    def encode(self, value: GroupState) -> bytes:
        fields: dict[str, Any] = {
            "format": _FORMAT,
            "streams": [f"{stream:016x}" for stream in value.streams],
            "starts": _offsets_to_json(value.starts),
            "ends": {
                f"{stream:016x}": {f"{segment.packed:x}": offset for segment, offset in sorted(end.items())}
                for stream, end in sorted(value.ends.items())
            },
            "positions": _offsets_to_json(value.positions),
            "lease_us": value.lease_us,
            "refresh_us": value.refresh_us,
            "checkpoint_us": value.checkpoint_us,
            "owners": {str(segment): owner for segment, owner in sorted(value.owners.items())},
            "members": {
                name: [member.session, member.heartbeats, member.joined_at]
                for name, member in sorted(value.members.items())
            },
            "pending": [_checkpoint_to_json(each) for each in value.pending],
            "checkpoints": [_checkpoint_to_json(each) for each in value.checkpoints],
            "names": {f"{stream:016x}": name for stream, name in sorted(value.names.items())},
            "resets": value.resets,
            "ended": value.ended,
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> GroupState:
        """See `Codec.decode`. Raises FormatTooNew, CorruptStore."""
        try:
            fields = parse_json(data)
            if fields["format"] > _FORMAT:
                raise FormatTooNew("the state of a reader group", fields["format"], _FORMAT)
            return GroupState(
                streams=tuple(StreamId(int(stream, 16)) for stream in fields["streams"]),
                starts=_offsets_from_json(fields["starts"]),
                ends={
                    StreamId(int(stream, 16)): {SegmentId.unpack(int(each, 16)): at for each, at in end.items()}
                    for stream, end in fields["ends"].items()
                },
                positions=_offsets_from_json(fields["positions"]),
                lease_us=fields["lease_us"],
                refresh_us=fields.get("refresh_us", limits.READER_REFRESH_US),
                checkpoint_us=fields["checkpoint_us"],
                owners={StreamSegment.parse(segment): owner for segment, owner in fields["owners"].items()},
                members={
                    name: Member(session, heartbeats, Micros(at))
                    for name, (session, heartbeats, at) in fields["members"].items()
                },
                pending=tuple(_checkpoint_from_json(each) for each in _pending(fields)),
                checkpoints=tuple(_checkpoint_from_json(each) for each in fields["checkpoints"]),
                names={StreamId(int(stream, 16)): name for stream, name in fields.get("names", {}).items()},
                resets=fields["resets"],
                ended=fields.get("ended", False),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise CorruptStore(f"expected the state of a reader group, found something else: {exc!r}") from exc


def _pending(fields: Mapping[str, Any]) -> list[Any]:
    if fields["format"] > 1:
        found: list[Any] = fields["pending"]
        return found
    return [] if fields["checkpoint"] is None else [fields["checkpoint"]]


def _offsets_to_json(offsets: Offsets) -> dict[str, int]:
    return {str(segment): offset for segment, offset in sorted(offsets.items())}


def _offsets_from_json(fields: Mapping[str, int]) -> dict[StreamSegment, int]:
    return {StreamSegment.parse(segment): offset for segment, offset in fields.items()}


def _checkpoint_to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "at": checkpoint.started_at,
        "offsets": _offsets_to_json(checkpoint.offsets),
        "waiting": sorted(checkpoint.waiting),
        "silent": checkpoint.silent,
    }


def _checkpoint_from_json(fields: Mapping[str, Any]) -> Checkpoint:
    offsets, waiting = _offsets_from_json(fields["offsets"]), frozenset(fields["waiting"])
    return Checkpoint(fields["name"], Micros(fields["at"]), offsets, waiting, fields.get("silent", False))
