"""Watermarks: up to which time a stream is complete, as far as its writers say so. Pure.

A writer notes a time: what it writes from then on is not older. The least of what all writers have noted last is the
watermark's time; its cut is where the stream ended when that was noted. So whoever has read up to the cut will find
nothing older behind it, but for what writers write against their word, or writers that come late.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from anabranch.core import cuts
from anabranch.errors import CorruptStore, FormatTooNew, InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.model.times import to_datetime

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Watermark:
    """No event behind `cut` is older than `time_us`, in µs since 1970."""

    time_us: Micros
    cut: StreamCut

    @property
    def time(self) -> datetime:
        """The time, aware."""
        return to_datetime(self.time_us)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """What is known of a position: all events behind it have times of at least `lower_us`, and all before it were written
    before their writers got to `upper_us`. None: nothing is known."""

    lower_us: Micros | None = None
    upper_us: Micros | None = None

    @property
    def lower(self) -> datetime | None:
        """The lower bound, aware."""
        return None if self.lower_us is None else to_datetime(self.lower_us)

    @property
    def upper(self) -> datetime | None:
        """The upper bound, aware."""
        return None if self.upper_us is None else to_datetime(self.upper_us)


@dataclass(frozen=True, slots=True)
class Noted:
    """What a writer noted last, and when, by its own clock."""

    time_us: Micros
    heard_at: Micros


@dataclass(frozen=True, slots=True)
class TimeState:
    """What the writers of a stream share: their last notes, and the watermark. That never goes back."""

    writers: Mapping[str, Noted] = field(default_factory=dict)
    mark: Watermark | None = None


def note(state: TimeState, writer: str, time_us: Micros, tail: StreamCut, now: Micros, *, idle_us: int) -> TimeState:
    """A writer notes a time. All that it wrote before lies before `tail`. Raises InvalidArgument for a time that goes
    back."""
    before = state.writers.get(writer)
    if before is not None and time_us < before.time_us:
        noted, asked = to_datetime(before.time_us).isoformat(), to_datetime(time_us).isoformat()
        raise InvalidArgument(f"writer '{writer}' noted {noted} before, and can't go back to {asked}")
    writers = {**state.writers, writer: Noted(time_us, now)}
    return _marked(replace(state, writers=_live(writers, now, idle_us)), tail)


def leave(state: TimeState, writer: str, tail: StreamCut, now: Micros, *, idle_us: int) -> TimeState:
    """A writer ends; the others are not held up by it any more. One that never noted anything changes nothing."""
    if writer not in state.writers:
        return state
    writers = {name: noted for name, noted in state.writers.items() if name != writer}
    return _marked(replace(state, writers=_live(writers, now, idle_us)), tail)


def _live(writers: Mapping[str, Noted], now: Micros, idle_us: int) -> dict[str, Noted]:
    """Without those that were not heard of for so long: the watermark does not wait for them."""
    return {name: noted for name, noted in writers.items() if now - noted.heard_at < idle_us}


def _marked(state: TimeState, tail: StreamCut) -> TimeState:
    least = min((noted.time_us for noted in state.writers.values()), default=None)
    if least is None or (state.mark is not None and least <= state.mark.time_us):
        return state
    return replace(state, mark=Watermark(least, tail))


def is_passed(view: StreamView, mark: Watermark, position: StreamCut) -> bool:
    """True if nothing before the mark's cut lies behind the position. What was truncated away counts as read."""
    if not mark.cut.as_dict().keys() <= view.segments.keys() or cuts.below_head(view, mark.cut.as_dict()):
        return True
    return cuts.before(view, mark.cut, position)


def least(windows: Sequence[TimeWindow]) -> TimeWindow:
    """What holds of all of them: the least of each bound, None where one is not known."""
    lowers, uppers = [each.lower_us for each in windows], [each.upper_us for each in windows]
    return TimeWindow(_least(lowers), _least(uppers))


def _least(times: Sequence[Micros | None]) -> Micros | None:
    known = [time for time in times if time is not None]
    return min(known, default=None) if len(known) == len(times) else None


def first_beyond(low: int, high: int, passed: Callable[[int], bool]) -> int:
    """The least number in `low <= number < high` that is not passed, or `high`. Marks are passed in their order."""
    while low < high:
        middle = (low + high) // 2
        if passed(middle):
            low = middle + 1
        else:
            high = middle
    return low


class TimeCodec:
    """Time states for a `StateSynchronizer`: JSON with a version, of which `docs/FORMATS.md` tells the fields."""

    def encode(self, value: TimeState) -> bytes:
        """See `Codec.encode`."""
        told: dict[str, Any] = {
            "format": _FORMAT,
            "writers": {name: [noted.time_us, noted.heard_at] for name, noted in sorted(value.writers.items())},
            "mark": None if value.mark is None else [value.mark.time_us, str(value.mark.cut)],
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> TimeState:
        """See `Codec.decode`. Raises FormatTooNew, CorruptStore."""
        try:
            told = json.loads(data)
            if told["format"] > _FORMAT:
                raise FormatTooNew("the watermarks of a stream", told["format"], _FORMAT)
            mark = told["mark"]
            return TimeState(
                {name: Noted(Micros(time), Micros(at)) for name, (time, at) in told["writers"].items()},
                None if mark is None else Watermark(Micros(mark[0]), StreamCut.parse(mark[1])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise CorruptStore(f"these are no watermarks: {exc!r}") from exc
