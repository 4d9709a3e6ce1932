"""Positions in a stream as they are sent to a broker. Times are interpreted by the rules of this process, not of the
broker."""

from __future__ import annotations

from datetime import datetime

from anabranch.model.cut import Edge, StreamCut
from anabranch.model.pointer import EventPointer
from anabranch.model.times import TimeRules, to_micros
from anabranch.reading.bounds import Place, parse_place
from anabranch.wire.v1 import anabranch_pb2 as v1


def sent_place(place: Place, rules: TimeRules) -> Edge | StreamCut | EventPointer | int:
    """The place, with a time as µs. Raises InvalidArgument."""
    found = parse_place(place, rules) if isinstance(place, str) else place
    return to_micros(found, rules) if isinstance(found, datetime | int | str) else found


def place_message(place: Place, rules: TimeRules) -> v1.Place:
    """The place as a message. Raises InvalidArgument."""
    found = sent_place(place, rules)
    if isinstance(found, Edge):
        return v1.Place(text=found.value)
    return v1.Place(time_us=found) if isinstance(found, int) else v1.Place(text=str(found))
