"""`python -m tests.simulation scaling`: shows how a scaling policy reacts to a load, hours of it in a moment.

The decision is the store's own (`anabranch.streams.scaling.plan`); only its input, the running totals, comes from a
trace instead of a catalog.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.catalog.state.load import LoadSample
from anabranch.core.scale import ScalePlan
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE, KEY_SPACE_END
from anabranch.model.names import StreamName
from anabranch.model.policy import ByByteRate, ByEventRate, ByRate
from anabranch.model.schema import RAW
from anabranch.model.stream import Segment, StreamInfo, StreamView
from anabranch.streams.scaling.plan import ScalingPace, load_of, plan_scaling, thin_samples

_EPILOG: Final = """\
The trace is a CSV file with the columns `seconds` and `rate`: from so many seconds on, so much comes in a second, in events or
bytes as the target is; the last line says when it ends. With the columns `share`, `low` and `high` too, that share of the
rate goes to the part `low <= place < high` of the key space (0 to 1), as hot keys do, and the rest to all of it.

  seconds,rate
  0,400
  600,9000
  1800,400
  7200,0

example:
  ./dev sim scaling --trace evening.csv --events-per-second 1000 --minimum 2 --factor 4"""


class Phase(NamedTuple):
    """From `seconds` on: `rate` a second, of which the fraction `share` goes to the key places `low <= place <
    high`."""

    seconds: float
    rate: float
    share: float = 0.0
    low: float = 0.0
    high: float = 1.0


class Moment(NamedTuple):
    """The state at a time: the load, the segments after the decision, and the greatest rate of one before it."""

    seconds: float
    rate: float
    segments: int
    greatest: float
    scaled: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """Phases in order; the last one only says when it ends."""

    phases: tuple[Phase, ...]

    @classmethod
    def read(cls, file: Path) -> Trace:
        """Reads a trace. Raises InvalidArgument with the line."""
        with file.open(newline="", encoding="utf-8") as lines:
            rows = csv.DictReader(lines)
            wrong = {"seconds", "rate"} - set(rows.fieldnames or ()) or set(rows.fieldnames or ()) - set(Phase._fields)
            if wrong:
                raise InvalidArgument(
                    f"{file}: a trace has the columns seconds, rate and no others than {Phase._fields}"
                )
            phases: list[Phase] = []
            for row in rows:
                try:
                    phase = Phase(**{name: float(value) for name, value in row.items() if value})
                except (TypeError, ValueError) as exc:
                    raise InvalidArgument(f"{file}, line {rows.line_num}: {exc}") from exc
                if not all(map(math.isfinite, phase)):
                    raise InvalidArgument(f"{file}, line {rows.line_num}: these are no numbers to count with")
                if phases and phase.seconds <= phases[-1].seconds:
                    raise InvalidArgument(f"{file}, line {rows.line_num}: its seconds do not rise")
                if not (phase.rate >= 0 and 0 <= phase.share <= 1 and 0 <= phase.low < phase.high <= 1):
                    raise InvalidArgument(
                        f"{file}, line {rows.line_num}: a rate is 0 or more, shares and places 0 to 1"
                    )
                phases.append(phase)
        if len(phases) < 2:
            raise InvalidArgument(f"{file}: a trace has at least two lines, the last of which says when it ends")
        return cls(tuple(phases))

    def at(self, seconds: float) -> Phase:
        """Returns the phase of a time."""
        return [phase for phase in self.phases if phase.seconds <= seconds][-1]

    @property
    def seconds(self) -> float:
        """When the trace ends, in seconds."""
        return self.phases[-1].seconds


def simulate(
    trace: Trace, policy: ByRate, *, every_s: float = 10.0, pace: ScalingPace | None = None
) -> Iterator[Moment]:
    """Makes a decision every `every_s` seconds, over the whole trace."""
    pace = pace or ScalingPace()
    view = _begin(policy.minimum)
    totals: dict[SegmentId, float] = {segment.id: 0.0 for segment in view.current}
    samples: dict[SegmentId, tuple[LoadSample, ...]] = {}
    steps = max(1, int((trace.seconds - trace.phases[0].seconds) / every_s))
    for step in range(steps):
        seconds = trace.phases[0].seconds + step * every_s
        phase = trace.at(seconds)
        rates = {segment.id: phase.rate * _part(phase, segment) for segment in view.current}
        for ident, rate in rates.items():
            totals[ident] = totals.get(ident, 0.0) + rate * every_s
        now = Micros(round((seconds + every_s) * 1e6))
        samples = {
            ident: thin_samples(
                (*samples.get(ident, ()), LoadSample(now, round(totals[ident]), round(totals[ident]))), pace
            )
            for ident in rates
        }
        loads = {ident: load_of(found, policy, pace) for ident, found in samples.items()}
        plan = plan_scaling(view, policy, loads, pace)
        if plan is not None:
            view = _applied(view, plan)
        yield Moment(seconds + every_s, phase.rate, len(view.current), max(rates.values()), plan is not None)


def _part(phase: Phase, segment: Segment) -> float:
    """Returns the fraction of the load that a segment gets."""
    low, high = segment.range.low / KEY_SPACE_END, segment.range.high / KEY_SPACE_END
    hot = max(0.0, min(high, phase.high) - max(low, phase.low)) / (phase.high - phase.low)
    return phase.share * hot + (1 - phase.share) * (high - low)


def _begin(segments: int) -> StreamView:
    info = StreamInfo(StreamId(1), StreamName("sim", "load"), RAW, 1, {}, Micros(0), False, 1, 0, segments)
    parts = [Segment(SegmentId(0, n), part, None, 0) for n, part in enumerate(FULL_KEY_RANGE.split(segments))]
    return StreamView(info, {segment.id: segment for segment in parts}, {}, {})


def _applied(view: StreamView, plan: ScalePlan) -> StreamView:
    kept = {segment.id: segment for segment in view.current if segment not in plan.sealed}
    created = {segment.id: segment for segment in plan.created}
    info = replace(view.info, epoch=plan.epoch, next_number=view.info.next_number + len(created))
    return StreamView(info, {**kept, **created}, {}, {})


def main(arguments: Sequence[str]) -> int:
    """Simulates and plots; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation scaling",
        description="Plot what a scaling policy does with a load.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trace", type=Path, required=True, metavar="FILE", help="the load, see below")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--events-per-second", type=float, metavar="N", help="what a segment should get at most")
    target.add_argument("--bytes-per-second", metavar="SIZE", help="the same in bytes, as 2MB")
    parser.add_argument("--factor", type=int, default=2, metavar="N", help="most parts of one split (default: 2)")
    parser.add_argument("--minimum", type=int, default=1, metavar="N", help="minimum number of segments (default: 1)")
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS", help="between decisions (default: 10)")
    parser.add_argument("--rows", type=int, default=40, metavar="N", help="lines of the plot (default: 40)")
    asked = parser.parse_args(arguments)
    try:
        limits = (asked.factor, asked.minimum)
        policy: ByRate = (
            ByByteRate(asked.bytes_per_second, *limits)
            if asked.events_per_second is None
            else ByEventRate(asked.events_per_second, *limits)
        )
        if not (asked.every > 0 and asked.rows > 0):
            raise InvalidArgument("--every and --rows are above 0")
        moments = list(simulate(Trace.read(asked.trace), policy, every_s=asked.every))
    except (InvalidArgument, OSError) as exc:
        print(f"sim scaling: {exc}", file=sys.stderr)
        return 2
    print("\n".join(plot(moments, policy, rows=asked.rows)))
    return 0


def plot(moments: Sequence[Moment], policy: ByRate, *, rows: int) -> Iterator[str]:
    """Plots load and segments over time, a line for each interval."""
    top, most = max(moment.rate for moment in moments), max(moment.segments for moment in moments)
    yield f"{'SECONDS':>8}  {'LOAD':>10}  {'':<30}  {'SEGMENTS':>8}"
    size = max(1, -(-len(moments) // rows))
    for start in range(0, len(moments), size):
        part = moments[start : start + size]
        last = part[-1]
        bar = "▇" * round(30 * last.rate / top) if top else ""
        marks = "▇" * max(1, round(30 * last.segments / most))
        yield f"{last.seconds:8,.0f}  {last.rate:10,.0f}  {bar:<30}  {last.segments:8}  {marks}"
    changes = sum(moment.scaled for moment in moments)
    over = sum(moment.greatest > policy.target for moment in moments)
    yield f"{changes} scalings, {most} segments at most; a segment was above its target in {over / len(moments):.1%} of the time"
