"""A group's shared state as bytes: JSON with a version, of which `docs/FORMATS.md` tells the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from anabranch import limits
from anabranch.core.group import Checkpoint, GroupState, Member, Offsets
from anabranch.errors import CorruptStore, FormatTooNew
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.position import StreamSegment

_FORMAT: Final = 1


class GroupCodec:
    """Group states for a `StateSynchronizer`."""

    def encode(self, value: GroupState) -> bytes:
        """See `Codec.encode`."""
        told: dict[str, Any] = {
            "format": _FORMAT,
            "streams": [f"{stream:016x}" for stream in value.streams],
            "starts": _offsets(value.starts),
            "ends": {
                f"{stream:016x}": {f"{segment.packed:x}": offset for segment, offset in sorted(end.items())}
                for stream, end in sorted(value.ends.items())
            },
            "positions": _offsets(value.positions),
            "lease_us": value.lease_us,
            "refresh_us": value.refresh_us,
            "checkpoint_us": value.checkpoint_us,
            "owners": {str(segment): owner for segment, owner in sorted(value.owners.items())},
            "members": {
                name: [member.session, member.beat, member.joined_at] for name, member in sorted(value.members.items())
            },
            "checkpoint": None if value.checkpoint is None else _checkpoint(value.checkpoint),
            "checkpoints": [_checkpoint(each) for each in value.checkpoints],
            "resets": value.resets,
            "ended": value.ended,
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> GroupState:
        """See `Codec.decode`. Raises FormatTooNew, CorruptStore."""
        try:
            told = json.loads(data)
            if told["format"] > _FORMAT:
                raise FormatTooNew("the state of a reader group", told["format"], _FORMAT)
            return GroupState(
                streams=tuple(StreamId(int(stream, 16)) for stream in told["streams"]),
                starts=_parsed(told["starts"]),
                ends={
                    StreamId(int(stream, 16)): {SegmentId.unpack(int(each, 16)): at for each, at in end.items()}
                    for stream, end in told["ends"].items()
                },
                positions=_parsed(told["positions"]),
                lease_us=told["lease_us"],
                refresh_us=told.get("refresh_us", limits.READER_REFRESH_US),
                checkpoint_us=told["checkpoint_us"],
                owners={StreamSegment.parse(segment): owner for segment, owner in told["owners"].items()},
                members={
                    name: Member(session, beat, Micros(at)) for name, (session, beat, at) in told["members"].items()
                },
                checkpoint=None if told["checkpoint"] is None else _parsed_checkpoint(told["checkpoint"]),
                checkpoints=tuple(_parsed_checkpoint(each) for each in told["checkpoints"]),
                resets=told["resets"],
                ended=told.get("ended", False),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise CorruptStore(f"this is no state of a reader group: {exc!r}") from exc


def _offsets(offsets: Offsets) -> dict[str, int]:
    return {str(segment): offset for segment, offset in sorted(offsets.items())}


def _parsed(told: Mapping[str, int]) -> dict[StreamSegment, int]:
    return {StreamSegment.parse(segment): offset for segment, offset in told.items()}


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "at": checkpoint.at,
        "offsets": _offsets(checkpoint.offsets),
        "waiting": sorted(checkpoint.waiting),
        "silent": checkpoint.silent,
    }


def _parsed_checkpoint(told: Mapping[str, Any]) -> Checkpoint:
    offsets, waiting = _parsed(told["offsets"]), frozenset(told["waiting"])
    return Checkpoint(told["name"], Micros(told["at"]), offsets, waiting, told.get("silent", False))
