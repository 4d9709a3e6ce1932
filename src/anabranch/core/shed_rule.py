"""Load shedding of a query: which part of a batch's events it reads, and which events these are. Pure: clocks are the
caller's.

The part is the batch's keep rate, the chance with which an event is kept. It falls in proportion to the overload: at twice
the limit half of the events are kept. Whether an event is kept depends on its segment and offset alone, so a batch that is
repeated with the same rate keeps the same events.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, cast

import numpy as np
import numpy.typing as npt

from anabranch.core.shedding import mixed_bits
from anabranch.errors import InvalidArgument

__all__ = ["KEEP_RATE_MIN", "ShedRule", "draws"]

KEEP_RATE_MIN: Final = 0.01  # estimates from a smaller part say little
_FORM: Final = re.compile(r"\s*(lag|rate)\s*>\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*\Z", re.IGNORECASE)
_SECONDS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}


@dataclass(frozen=True, slots=True)
class ShedRule:
    """When events are shed: while the oldest unread event was appended more than `limit` seconds ago (`lag`), while more
    than `limit` events per second are appended (`rate`), or never."""

    by: Literal["lag", "rate", "never"]
    limit: float = 0.0

    @classmethod
    def parse(cls, text: str) -> ShedRule:
        """From `lag > 10 s`, `rate > 50000` or `never`. Raises InvalidArgument."""
        if text.strip().lower() == "never":
            return cls("never")
        found = _FORM.match(text)
        by = "" if found is None else found[1].lower()
        unit = "" if found is None else found[3].lower()
        if found is None or (by == "rate") != (unit == "") or (by == "lag" and unit not in _SECONDS):
            raise InvalidArgument(f"'{text}': expected 'lag > 10 s', 'rate > 50000' (events per second) or 'never'")
        limit = float(found[2]) * (_SECONDS[unit] if unit else 1)
        if not 0 < limit < math.inf:
            raise InvalidArgument(f"'{text}': expected a finite limit above 0")
        return cls(cast(Literal["lag", "rate"], by), limit)

    def __str__(self) -> str:
        digits = f"{Decimal(repr(self.limit)):f}"  # no exponent, which `parse` doesn't read
        return "never" if self.by == "never" else f"{self.by} > {digits}{' s' if self.by == 'lag' else ''}"

    def keep_rate(self, load: float) -> float:
        """The keep rate at this lag in seconds, or events per second; rounded to 4 digits, so that
        its text reads back as the same rate."""
        if self.by == "never" or load <= self.limit:
            return 1.0
        return max(KEEP_RATE_MIN, float(f"{self.limit / load:.4g}"))


def draws(segment: int, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each event of a segment (`SegmentId.packed`), uniform and always the same. An event is kept
    if it is less than the batch's keep rate, so what a lower rate keeps, a higher one keeps too."""
    seed = mixed_bits(np.array([segment], np.int64).view(np.uint64) + np.uint64(1))
    return (mixed_bits(offsets.view(np.uint64) + seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53
