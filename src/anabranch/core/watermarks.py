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

from anabranch import limits
from anabranch.core import cuts
from anabranch.errors import CorruptStore, FormatTooNew, InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.model.times import to_datetime

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Watermark:
    """No event behind `cut` is older than `time_us`, in µs since 1970. When it was made, at `at` by the clock of who made it,
    no writer had noted a later time than `latest_us`."""

    time_us: Micros
    cut: StreamCut
    latest_us: Micros
    at: Micros

    @property
    def time(self) -> datetime:
        """The time, aware."""
        return to_datetime(self.time_us)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """What is known of a position: all events behind it have times of at least `lower_us`, and no writer had noted a later
    time than `upper_us` when it wrote what lies before it. None: nothing is known, near the head of the lower bound, near
    the tail of the upper one. Where both are known, the lower is not above the upper."""

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
    """What the writers of a stream share: their last notes, and the watermark. That never goes back. `latest_us` is the
    latest time noted since the watermark was made, `tail` where the stream ended at the last note. `idle_us`: a writer that
    noted nothing for so long is waited for no longer; None: for as long as whoever looks says. `silent` are the last of these:
    they count for nothing, and are there to be told of."""

    writers: Mapping[str, Noted] = field(default_factory=dict)
    mark: Watermark | None = None
    latest_us: Micros | None = None
    tail: StreamCut | None = None
    idle_us: int | None = None
    silent: Mapping[str, Noted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriterTime:
    """What a writer noted last, and when. One that is `idle` noted nothing for so long that it is waited for no longer."""

    writer: str
    time_us: Micros
    heard_at: Micros
    idle: bool


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """How a stream's watermark stands at the time `now`. `newest_us` is the greatest event time that the stream holds, None
    where its events have none. `writers` are those that noted a time and have not ended, the furthest behind first; of the
    idle ones the last `limits.SILENT_WRITERS_KEPT`, for `limits.SILENT_WRITERS_KEPT_US`."""

    stream: str
    now: Micros
    mark: Watermark | None
    newest_us: Micros | None
    writers: tuple[WriterTime, ...] = ()

    @property
    def lag_us(self) -> int | None:
        """How far the watermark is behind the newest event, in µs of event time; None where one of them is not known."""
        if self.mark is None or self.newest_us is None:
            return None
        return max(0, self.newest_us - self.mark.time_us)

    @property
    def still_us(self) -> int | None:
        """For how long, in µs, the watermark has not advanced; None where there is none."""
        return None if self.mark is None else max(0, self.now - self.mark.at)

    @property
    def idle(self) -> tuple[str, ...]:
        """The names of the writers that are idle."""
        return tuple(each.writer for each in self.writers if each.idle)


def note(state: TimeState, writer: str, time_us: Micros, tail: StreamCut, now: Micros, *, idle_us: int) -> TimeState:
    """A writer notes a time. All that it wrote before lies before `tail`. Raises InvalidArgument for a time that goes
    back."""
    before = state.writers.get(writer)
    if before is not None and time_us < before.time_us:
        noted, asked = to_datetime(before.time_us).isoformat(), to_datetime(time_us).isoformat()
        raise InvalidArgument(f"writer '{writer}' noted {noted} before, and can't go back to {asked}")
    latest = time_us if state.latest_us is None else max(time_us, state.latest_us)
    state = _without(state, writer)
    state = replace(state, writers={**state.writers, writer: Noted(time_us, now)}, latest_us=latest)
    return _marked(_waiting(state, now, idle_us), tail, now)


def leave(state: TimeState, writer: str, tail: StreamCut, now: Micros, *, idle_us: int) -> TimeState:
    """A writer ends; the others are not held up by it any more. One that never noted anything changes nothing."""
    if writer not in state.writers and writer not in state.silent:
        return state
    return _marked(_waiting(_without(state, writer), now, idle_us), tail, now)


def pass_by(state: TimeState, writer: str, time_us: Micros, tail: StreamCut, now: Micros, *, idle_us: int) -> TimeState:
    """A writer notes a time and ends: what it wrote all lies before `tail`, and nothing of it follows."""
    noted = note(state, writer, time_us, tail, now, idle_us=idle_us)
    return leave(noted, writer, tail, now, idle_us=idle_us)


def status(state: TimeState, stream: str, newest_us: Micros | None, now: Micros, *, idle_us: int) -> WatermarkStatus:
    """How the watermark of a stream of this name stands."""
    idle = {name for name, noted in state.writers.items() if now - noted.heard_at >= _patience(state, idle_us)}
    writers = (
        WriterTime(name, noted.time_us, noted.heard_at, name in idle or name in state.silent)
        for name, noted in (*state.writers.items(), *state.silent.items())
    )
    ordered = sorted(writers, key=lambda each: (each.time_us, each.writer))
    return WatermarkStatus(stream, now, state.mark, newest_us, tuple(ordered))


def _without(state: TimeState, writer: str) -> TimeState:
    writers, silent = ({k: v for k, v in each.items() if k != writer} for each in (state.writers, state.silent))
    return replace(state, writers=writers, silent=silent)


def _waiting(state: TimeState, now: Micros, idle_us: int) -> TimeState:
    """Those that were not heard of for so long are silent: the watermark does not wait for them."""
    idle_us = _patience(state, idle_us)
    live = {name: noted for name, noted in state.writers.items() if now - noted.heard_at < idle_us}
    heard = {**state.silent, **{name: noted for name, noted in state.writers.items() if name not in live}}
    last = sorted(heard, key=lambda name: (-heard[name].heard_at, name))[: limits.SILENT_WRITERS_KEPT]
    kept = {name: heard[name] for name in last if now - heard[name].heard_at < limits.SILENT_WRITERS_KEPT_US}
    return replace(state, writers=live, silent=kept)


def _patience(state: TimeState, idle_us: int) -> int:
    return idle_us if state.idle_us is None else state.idle_us


def _marked(state: TimeState, tail: StreamCut, now: Micros) -> TimeState:
    # Who looked at the tail first may be told of second; the others' events lie before the later one of the two.
    tail = tail if state.tail is None else max(tail, state.tail, key=_moment)
    state = replace(state, tail=tail)
    times = [noted.time_us for noted in state.writers.values()]
    if not times or (state.mark is not None and min(times) <= state.mark.time_us):
        return state
    assert state.latest_us is not None, "a time was noted"
    mark = Watermark(min(times), tail, state.latest_us, now)
    return replace(state, mark=mark, latest_us=max(times))


def _moment(tail: StreamCut) -> tuple[int, int]:
    """Tails of one stream in the order of time: each scaling makes a segment of a new epoch, and offsets only grow."""
    return max(segment.epoch for segment, _ in tail), sum(offset for _, offset in tail)


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
            "writers": _told_writers(value.writers),
            "mark": None if value.mark is None else _told(value.mark),
            "latest": value.latest_us,
            "tail": None if value.tail is None else str(value.tail),
            "idle": value.idle_us,
            "silent": _told_writers(value.silent),
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> TimeState:
        """See `Codec.decode`. Raises FormatTooNew, CorruptStore."""
        try:
            told = json.loads(data)
            if told["format"] > _FORMAT:
                raise FormatTooNew("the watermarks of a stream", told["format"], _FORMAT)
            mark, tail = told["mark"], told["tail"]
            return TimeState(
                _heard_writers(told["writers"]),
                None if mark is None else _heard(*mark),
                told["latest"],
                None if tail is None else StreamCut.parse(tail),
                told.get("idle"),
                _heard_writers(told.get("silent", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise CorruptStore(f"these are no watermarks: {exc!r}") from exc


def _told_writers(writers: Mapping[str, Noted]) -> dict[str, list[int]]:
    return {name: [noted.time_us, noted.heard_at] for name, noted in sorted(writers.items())}


def _heard_writers(told: Mapping[str, tuple[int, int]]) -> dict[str, Noted]:
    return {name: Noted(Micros(time), Micros(at)) for name, (time, at) in told.items()}


def _told(mark: Watermark) -> list[object]:
    return [mark.time_us, str(mark.cut), mark.latest_us, mark.at]


def _heard(time_us: int, cut: str, latest_us: int, at: int) -> Watermark:
    return Watermark(Micros(time_us), StreamCut.parse(cut), Micros(latest_us), Micros(at))
