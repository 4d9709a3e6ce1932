"""The parameters of a request, of its URL and of a form."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.server.http.body import FORM, form_fields, media_type, read_body
from anabranch.server.http.front import HttpCall

_PARTS: Final = re.compile(r"(\d+)(ms|s|m|h|d|w|y)")
_UNITS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
_TIME_MAX_S: Final = 253_402_300_799  # the year 9999
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class GivenParameters:
    """Names and values, in the order given; a name may occur several times."""

    pairs: tuple[tuple[str, str], ...]

    def text(self, name: str) -> str:
        """The first value, or the empty text."""
        return next((value for key, value in self.pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        """All values of a name; Go's clients may add `[]`."""
        return [value for key, value in self.pairs if key in (name, f"{name}[]")]

    def time(self, name: str, default: int | None = None) -> int:
        """A time in milliseconds, given as seconds or by RFC 3339. Raises InvalidArgument."""
        text = self.text(name)
        if not text and default is not None:
            return default
        found = _time(text)
        if found is None:
            raise InvalidArgument(f'invalid parameter "{name}": cannot parse "{text:.80}" to a valid timestamp')
        return found

    def duration(self, name: str) -> int:
        """A duration in milliseconds, given as seconds or such as `1m30s`. Raises InvalidArgument."""
        text = self.text(name)
        found = _duration(text)
        if found is None:
            raise InvalidArgument(f'invalid parameter "{name}": cannot parse "{text:.80}" to a valid duration')
        return found


async def given_parameters(call: HttpCall) -> GivenParameters:
    """The parameters of the URL, then the parameters of a form. Raises InvalidArgument, TooLarge."""
    pairs = list(call.request.query_params.multi_items())
    if call.request.method == "POST":
        body = await read_body(call.request.receive, call.request.scope["headers"], bytes_max=4 * limits.SQL_BYTES_MAX)
        kind = media_type(call.request.headers)
        if kind not in ("", FORM) and body:
            raise InvalidArgument(f"expected a form ({FORM}), got {kind:.80}")
        pairs = [*form_fields(body), *pairs]
    return GivenParameters(tuple(pairs))


def _time(text: str) -> int | None:
    seconds = _number(text)
    if seconds is not None:
        return round(seconds * 1000) if abs(seconds) <= _TIME_MAX_S else None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else round(found.timestamp() * 1000)


def _duration(text: str) -> int | None:
    seconds = _number(text)
    if seconds is not None:
        return round(seconds * 1000) if abs(seconds) <= _TIME_MAX_S else None
    parts = _PARTS.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text or len(text) > 40:
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
