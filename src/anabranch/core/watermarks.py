"""Watermarks: the event time up to which a stream is complete, according to its writers. Pure.

A writer notes a time: its later events are not older. The watermark's time is the minimum of the last times noted by
all writers; its cut is the tail of the stream when the watermark was made. So a reader that has read up to the cut
finds no older events after it, except from writers that write older events than they noted, or that join late."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from anabranch import limits
from anabranch.core import cuts
from anabranch.core.json_text import parse_json
from anabranch.errors import CorruptStore, FormatTooNew, InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.model.times import to_datetime

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Watermark:
    """No event after `cut` is older than `time_us`, in µs since 1970. `made_at` is when the watermark was made, by the
    clock of the process that made it; at that moment, no writer had noted a later time than `latest_us`."""

    time_us: Micros
    cut: StreamCut
    latest_us: Micros
    made_at: Micros

    @property
    def time(self) -> datetime:
        """The time as an aware datetime."""
        return to_datetime(self.time_us)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Bounds on event times at a position: all events after it have times of at least `lower_us`, and no writer had
    noted a later time than `upper_us` when it wrote the events before it. None means unknown: the lower bound near the
    head, the upper bound near the tail. If both are known, the lower is not above the upper."""

    lower_us: Micros | None = None
    upper_us: Micros | None = None

    @property
    def lower(self) -> datetime | None:
        """The lower bound as an aware datetime."""
        return None if self.lower_us is None else to_datetime(self.lower_us)

    @property
    def upper(self) -> datetime | None:
        """The upper bound as an aware datetime."""
        return None if self.upper_us is None else to_datetime(self.upper_us)


@dataclass(frozen=True, slots=True)
class WriterNote:
    """The last time that a writer noted, and when it noted it, by its own clock."""

    time_us: Micros
    noted_at: Micros


@dataclass(frozen=True, slots=True)
class TimeState:
    """The state that the writers of a stream share: their last notes, and the watermark, which never goes back.

    `latest_us` is the latest time noted since the watermark was made, `tail` the tail of the stream at the last note. A
    writer that noted nothing for `idle_us` is no longer waited for; None: the caller's value applies. `idle_writers`
    are the most recent of the writers that are no longer waited for: they don't affect the watermark, and are kept for
    reports."""

    writers: Mapping[str, WriterNote] = field(default_factory=dict)
    watermark: Watermark | None = None
    latest_us: Micros | None = None
    tail: StreamCut | None = None
    idle_us: int | None = None
    idle_writers: Mapping[str, WriterNote] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriterTime:
    """The last time that a writer noted, and when. The watermark no longer waits for an `idle` writer, which noted
    nothing for too long."""

    writer: str
    time_us: Micros
    noted_at: Micros
    idle: bool


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """The status of a stream's watermark at the time `now`. `newest_us` is the greatest event time in the stream, None
    if its events have none. `writers` are those that noted a time and have not ended, the furthest behind first. Of
    idle writers, the last `limits.IDLE_WRITERS_KEPT` are listed, each for `limits.IDLE_WRITERS_KEPT_US`."""

    stream: str
    now: Micros
    watermark: Watermark | None
    newest_us: Micros | None
    writers: tuple[WriterTime, ...] = ()

    @property
    def lag_us(self) -> int | None:
        """How far the watermark is behind the newest event, in µs of event time; None if either is unknown."""
        if self.watermark is None or self.newest_us is None:
            return None
        return max(0, self.newest_us - self.watermark.time_us)

    @property
    def stalled_us(self) -> int | None:
        """How long the watermark has not advanced, in µs; None if there is no watermark."""
        return None if self.watermark is None else max(0, self.now - self.watermark.made_at)

    @property
    def idle(self) -> tuple[str, ...]:
        """The names of the idle writers."""
        return tuple(each.writer for each in self.writers if each.idle)


def note(state: TimeState, writer: str, time_us: Micros, tail: StreamCut, now: Micros, *, idle_us: int) -> TimeState:
    """A writer notes a time. All events that it wrote before are before `tail`. Raises InvalidArgument for a time
    before the last one that the writer noted, unless the writer has become idle since: then it may note any time, like
    a new writer."""
    last = state.writers.get(writer)
    if last is not None and time_us < last.time_us:
        noted, asked = to_datetime(last.time_us).isoformat(), to_datetime(time_us).isoformat()
        raise InvalidArgument(f"expected a time of at least {noted}, which writer '{writer}' noted before; got {asked}")
    latest = time_us if state.latest_us is None else max(time_us, state.latest_us)
    state = _remove_writer(state, writer)
    state = replace(state, writers={**state.writers, writer: WriterNote(time_us, now)}, latest_us=latest)
    return _advance_watermark(_move_idle_writers(state, now, idle_us), tail, now)


def leave(state: TimeState, writer: str, tail: StreamCut, now: Micros, *, idle_us: int) -> TimeState:
    """A writer ends and no longer holds back the watermark. If it never noted a time, nothing changes."""
    if writer not in state.writers and writer not in state.idle_writers:
        return state
    return _advance_watermark(_move_idle_writers(_remove_writer(state, writer), now, idle_us), tail, now)


def note_and_leave(
    state: TimeState, writer: str, time_us: Micros, tail: StreamCut, now: Micros, *, idle_us: int
) -> TimeState:
    """A writer notes a time and ends: all its events are before `tail`, and none follow."""
    noted = note(state, writer, time_us, tail, now, idle_us=idle_us)
    return leave(noted, writer, tail, now, idle_us=idle_us)


def status(state: TimeState, stream: str, newest_us: Micros | None, now: Micros, *, idle_us: int) -> WatermarkStatus:
    """The status of a stream's watermark; `stream` is its name."""
    idle = {name for name, noted in state.writers.items() if now - noted.noted_at >= _idle_timeout_us(state, idle_us)}
    writers = (
        WriterTime(name, noted.time_us, noted.noted_at, name in idle or name in state.idle_writers)
        for name, noted in (*state.writers.items(), *state.idle_writers.items())
    )
    ordered = sorted(writers, key=lambda each: (each.time_us, each.writer))
    return WatermarkStatus(stream, now, state.watermark, newest_us, tuple(ordered))


def _remove_writer(state: TimeState, writer: str) -> TimeState:
    writers, idle_writers = (
        {k: v for k, v in each.items() if k != writer} for each in (state.writers, state.idle_writers)
    )
    return replace(state, writers=writers, idle_writers=idle_writers)


def _move_idle_writers(state: TimeState, now: Micros, idle_us: int) -> TimeState:
    """Move writers without a note for the idle time to `idle_writers`: the watermark does not wait for them."""
    idle_us = _idle_timeout_us(state, idle_us)
    active = {name: noted for name, noted in state.writers.items() if now - noted.noted_at < idle_us}
    idle_writers = {
        **state.idle_writers,
        **{name: noted for name, noted in state.writers.items() if name not in active},
    }
    last = sorted(idle_writers, key=lambda name: (-idle_writers[name].noted_at, name))[: limits.IDLE_WRITERS_KEPT]
    kept = {
        name: idle_writers[name] for name in last if now - idle_writers[name].noted_at < limits.IDLE_WRITERS_KEPT_US
    }
    return replace(state, writers=active, idle_writers=kept)


def _idle_timeout_us(state: TimeState, idle_us: int) -> int:
    return idle_us if state.idle_us is None else state.idle_us


def _advance_watermark(state: TimeState, tail: StreamCut, now: Micros) -> TimeState:
    # Writers may read the tail in one order and record it in another; the later tail is after all their events.
    tail = tail if state.tail is None else max(tail, state.tail, key=_tail_order)
    state = replace(state, tail=tail)
    times = [noted.time_us for noted in state.writers.values()]
    if not times or (state.watermark is not None and min(times) <= state.watermark.time_us):
        return state
    assert state.latest_us is not None, "a time was noted"
    watermark = Watermark(min(times), tail, state.latest_us, now)
    return replace(state, watermark=watermark, latest_us=max(times))


def _tail_order(tail: StreamCut) -> tuple[int, int]:
    """A sort key for tails of one stream, in the order of time: each scale creates segments of a new epoch, and offsets
    only grow."""
    return max(segment.epoch for segment, _ in tail), sum(offset for _, offset in tail)


def is_passed(view: StreamView, watermark: Watermark, position: StreamCut) -> bool:
    """True if all events before the watermark's cut are before the position. Truncated events count as read."""
    if not watermark.cut.as_dict().keys() <= view.segments.keys() or cuts.below_head(view, watermark.cut.as_dict()):
        return True
    return cuts.is_before(view, watermark.cut, position)


def common_bounds(windows: Sequence[TimeWindow]) -> TimeWindow:
    """The bounds that hold for all windows: the minimum of each bound, None if one window does not know it."""
    lowers, uppers = [each.lower_us for each in windows], [each.upper_us for each in windows]
    return TimeWindow(_minimum(lowers), _minimum(uppers))


def _minimum(times: Sequence[Micros | None]) -> Micros | None:
    known = [time for time in times if time is not None]
    return min(known, default=None) if len(known) == len(times) else None


def first_not_passed(low: int, high: int, passed: Callable[[int], bool]) -> int:
    """Binary search: the first number in `low <= number < high` for which `passed` is false, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if passed(middle):
            low = middle + 1
        else:
            high = middle
    return low


class TimeCodec:
    """Encodes time states for a `StateSynchronizer`: JSON with a format version. `docs/explanation/formats.md`
    describes the fields."""

    def encode(self, value: TimeState) -> bytes:
        fields: dict[str, Any] = {
            "format": _FORMAT,
            "writers": _writers_to_json(value.writers),
            "mark": None if value.watermark is None else _watermark_to_json(value.watermark),
            "latest": value.latest_us,
            "tail": None if value.tail is None else str(value.tail),
            "idle": value.idle_us,
            "silent": _writers_to_json(value.idle_writers),
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> TimeState:
        """See `Codec.decode`. Raises FormatTooNew, CorruptStore."""
        try:
            fields = parse_json(data)
            if fields["format"] > _FORMAT:
                raise FormatTooNew("the watermarks of a stream", fields["format"], _FORMAT)
            watermark, tail = fields["mark"], fields["tail"]
            return TimeState(
                _writers_from_json(fields["writers"]),
                None if watermark is None else _watermark_from_json(*watermark),
                fields["latest"],
                None if tail is None else StreamCut.parse(tail),
                fields.get("idle"),
                _writers_from_json(fields.get("silent", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise CorruptStore(f"expected the watermarks of a stream, found something else: {exc!r}") from exc


def _writers_to_json(writers: Mapping[str, WriterNote]) -> dict[str, list[int]]:
    return {name: [noted.time_us, noted.noted_at] for name, noted in sorted(writers.items())}


def _writers_from_json(fields: Mapping[str, tuple[int, int]]) -> dict[str, WriterNote]:
    return {name: WriterNote(Micros(time), Micros(at)) for name, (time, at) in fields.items()}


def _watermark_to_json(watermark: Watermark) -> list[object]:
    return [watermark.time_us, str(watermark.cut), watermark.latest_us, watermark.made_at]


def _watermark_from_json(time_us: int, cut: str, latest_us: int, at: int) -> Watermark:
    return Watermark(Micros(time_us), StreamCut.parse(cut), Micros(latest_us), Micros(at))
