"""`python -m tests.simulation`: simulates whole runs of a store, each from one seed, and judges them."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.simulation import algebra_command as algebra_sim
from tests.simulation import scaling_command as scaling_sim
from tests.simulation.clients import ALL, BY_NAME, TOGETHER
from tests.simulation.simulation import PLACES, Outcome, Simulation

_TEXT: Final = """\
Simulates the store: several processes of clients (writers, some of which fight for one name, readers, followers,
publishing, transactions, byte streams, groups, watermarks, notifications, copying, appending and stitching of streams,
renaming, scaling by hand and by load, sealing, fencing, truncation, compaction, collection, deletion) run the real code over a real SQLite catalog and a real folder, or the real adapter for object
stores over a simulated bucket, single-stepped by a scheduler that draws from one seed, on a virtual clock.

Processes crash at any call of the catalog or the blob store, and are replaced. Answers are lost: of calls that took
place, that never do, or that do later. Calls are delayed, overtake each other, arrive twice, and stall beyond the collector's
horizon and leases. Clocks differ and jump. The power is cut, and takes what was not synced.

In the end it is verified that every acknowledged event is there exactly once, at its pointer, that the order of each
writer's keys is kept, that refused events are not there, that no atomic batch is torn, that every reader saw exactly
what is stored, that the history of each segment is linearizable, that all of a transaction is there or nothing, and
that `check` finds nothing.

The same seed and steps always give the same run: its digest, printed at the end, is the proof."""

_MIXES: Final = {"all": ALL, "together": TOGETHER, **BY_NAME}

_EXAMPLES: Final = """\
examples:
  python -m tests.simulation                            a short run from a seed that the clock gives
  python -m tests.simulation --seed 7 --steps 20000     one run, from seed 7
  python -m tests.simulation --seed 1 --runs 500        the seeds 1 to 500
  python -m tests.simulation --seed 1 --runs 2000 --steps 1200 --mix groups
                                                             2000 short runs of one kind: about a second each
  python -m tests.simulation --seed 7 --place s3        with its blobs in a bucket that fails and forgets to answer
  python -m tests.simulation --seed 7 --trace 200       with the last 200 steps of the run
  python -m tests.simulation scaling --help             what a scaling policy does with a load
  python -m tests.simulation algebra --help             random operations on streams, held to lists

exit code: 0 all sound, 1 a violation, 2 wrong arguments, 130 interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the given number of seeds. Returns 1 at the first violation, else 0."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["scaling"]:
        return scaling_sim.main(given[1:])
    if given[:1] == ["algebra"]:
        return algebra_sim.main(given[1:])
    options = _parser().parse_args(arguments)
    logging.getLogger("anabranch").addHandler(logging.NullHandler())  # the run makes upkeep fail on purpose
    seed = int(time.time()) % 1_000_000 if options.seed is None else options.seed
    total: Counter[str] = Counter()
    began = time.monotonic()
    try:
        for each in range(seed, seed + options.runs):
            outcome = Simulation(
                each,
                steps=options.steps,
                processes=options.processes,
                place=options.place,
                mixes=_MIXES[options.mix],
                tell=_Progress(each),
            ).run()
            _clear()
            total.update(outcome.done)
            total["step"] += outcome.steps
            total["crash"] += outcome.crashes
            total["power cut"] += outcome.power_cuts
            if not outcome.sound:
                _report_failure(outcome, options)
                return 1
            print(_line(outcome), flush=True)
            if options.trace:
                print("\n".join(outcome.trace[-options.trace :]))
    except KeyboardInterrupt:
        _clear()
        print("interrupted; what ran until here was sound")
        return 130
    if options.runs > 1:
        print(_summary(total, options.runs, time.monotonic() - began))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=_TEXT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="the first seed (default: from the clock, and printed)")
    parser.add_argument("--steps", type=_positive, default=10_000, help="scheduler steps of a run (default: 10000)")
    parser.add_argument("--runs", type=_positive, default=1, help="how many seeds, counted up (default: 1)")
    parser.add_argument("--processes", type=_positive, default=3, help="simulated processes at a time (default: 3)")
    parser.add_argument(
        "--place", choices=PLACES, default="folder", help="where blobs lie (default: folder; sealed: encrypted)"
    )
    parser.add_argument("--mix", choices=[*_MIXES], default="all", help="which clients take part (default: all)")
    parser.add_argument("--trace", type=int, default=0, metavar="N", help="show the last N steps (a failure shows 40)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a number above 0")
    return number


class _Progress:
    """A line that is overwritten, on a terminal only."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._last = 0.0

    def __call__(self, steps: int, acked: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._last > 0.2:
            self._last = now
            sys.stderr.write(f"\r\x1b[Kseed {self._seed}: step {steps:,}, {acked:,} events acknowledged")
            sys.stderr.flush()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _line(outcome: Outcome) -> str:
    done = outcome.done
    return (
        f"seed {outcome.seed}: sound. {outcome.steps:,} steps, {outcome.virtual_s:.1f} s virtual, "
        f"{outcome.crashes} crashes, {outcome.power_cuts} power cuts, {done['event acknowledged']:,} events acknowledged, "
        f"{done['scale']} scales, {done['seal']} seals, {done['compact']} compactions, {done['collect']} collections; "
        f"digest {outcome.digest}"
    )


def _summary(total: Counter[str], runs: int, seconds: float) -> str:
    rows = "\n".join(f"  {count:>12,}  {what}" for what, count in sorted(total.items()))
    rate = total["step"] / seconds if seconds else 0
    return f"{runs} runs, all sound, in {seconds:.1f} s ({rate:,.0f} steps/s)\n{rows}"


def _report_failure(outcome: Outcome, options: argparse.Namespace) -> None:
    print("\n".join(outcome.trace[-(options.trace or 40) :]))
    print(f"\nVIOLATION with seed {outcome.seed} after {outcome.steps:,} steps (the last of them above)")
    for violation in outcome.violations:
        print(f"  {violation}")
    if outcome.error is not None:
        traceback.print_exception(outcome.error)
    print("\nreplay it with:")
    replay = f"python -m tests.simulation --seed {outcome.seed} --steps {options.steps}"
    print(f"  {replay} --processes {options.processes} --place {options.place} --mix {options.mix} --trace 1000")


if __name__ == "__main__":
    sys.exit(main())
