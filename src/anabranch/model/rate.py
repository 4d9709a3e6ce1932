"""How fast a consumer wants its events."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.errors import InvalidArgument
from anabranch.model.amounts import to_size


@dataclass(frozen=True, slots=True)
class Rate:
    """A maximum number of events, of bytes, or of both, per second; None: any number. Bytes are those of the events'
    columns in memory (Arrow), as a number or as text such as `2MB`."""

    events_per_s: float | None = None
    bytes_per_s: float | None = None

    def __init__(self, events_per_s: float | None = None, bytes_per_s: float | str | None = None) -> None:
        if isinstance(bytes_per_s, str):
            bytes_per_s = to_size(bytes_per_s)
        if events_per_s is None and bytes_per_s is None:
            raise InvalidArgument("expected events_per_s=, bytes_per_s= or both for a rate")
        for name, value in (("events_per_s", events_per_s), ("bytes_per_s", bytes_per_s)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise InvalidArgument(f"expected {name} to be a number, got {value!r:.100}")
            if value is not None and not 0 < value < math.inf:
                raise InvalidArgument(f"expected {name} to be above 0, got {value:g}")
            object.__setattr__(self, name, value)
