"""`python -m tests.simulation algebra`: random operations on many streams in two stores, compared with lists after
each step."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from tests.simulation import workload_algebra as lives_making
from tests.simulation import workload_changes as lives_changing
from tests.simulation import workload_columns as lives_joining
from tests.simulation import workload_jobs as lives_moving
from tests.simulation.workload import SECOND, ModelStore, Workload

_TEXT: Final = """\
Draws one operation on streams after the other: writing, scaling, sealing, truncation, retention, copies, appends and
stitches within a store, to another one and of several, jobs that fail half-way, builders, renaming, aliases, whole scopes,
archives, imports and attachments, ephemeral streams, columns that are added and widened, transactions that stay open
meanwhile, compaction and collection. The model is a list of events for each key.

After every step each stream reads what its lists say, every pointer that was ever handed out fetches its event or says
that it is gone, and `check` finds nothing. In the end collection has removed all that no stream can see, and nothing
else; and when the streams go one by one, all of it."""

_EXAMPLES: Final = """\
examples:
  ./dev sim algebra                            a run from a seed that the clock gives
  ./dev sim algebra --seed 7 --steps 500       one run, from seed 7
  ./dev sim algebra --seed 1 --runs 100        the seeds 1 to 100
  ./dev sim algebra --seed 7 --trace           with every step of it

exit code: 0 all sound, 1 a violation, 2 wrong arguments, 130 interrupted"""

_ROOMS: Final = (lives_changing, lives_making, lives_moving, lives_joining)
VERBS: Final = {verb.__name__: verb for room in _ROOMS for verb in room.VERBS}

# Relative frequency of verbs; others have 1.
_OFTEN: Final = {"write": 10, "compact": 3} | dict.fromkeys(
    ("scale", "truncate", "collect", "copy", "append", "stitch", "ephemeral"), 2
)


@dataclass
class AlgebraRun:
    """The outcome of a run. `error` is what ended it early, after the last line of the `trace`."""

    seed: int
    steps: int
    done: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def replay(self) -> str:
        """The command that replays the run."""
        return f"./dev sim algebra --seed {self.seed} --steps {self.steps} --trace"


def live(seed: int, steps: int) -> AlgebraRun:
    """Runs one workload, which depends only on the seed."""
    run = AlgebraRun(seed, steps)
    with closing(Workload(seed)) as lives:
        run.done = lives.done
        try:
            for number in range(1, steps + 1):
                _step(lives, number, run.trace)
            for house in lives.houses:
                run.trace.append(f"  end  {house.title}")
                _end(lives, house, run.trace)
        except Exception as exc:
            run.error = exc
    return run


def _step(lives: Workload, number: int, trace: list[str]) -> None:
    while True:
        verb = lives.rng.choices([*VERBS.values()], [_weight(name, lives.done[name]) for name in VERBS])[0]
        trace.append(f"{number:5}  {verb.__name__} …")
        lives.clock.micros += lives.rng.randrange(3) * SECOND
        done = verb(lives)
        trace.pop()
        if done is not None:
            break
    what, houses = done
    trace.append(f"{number:5}  {houses[0].title}: {verb.__name__} {what}")
    lives.done[verb.__name__] += 1
    for house in dict.fromkeys(houses):
        house.judge()


def _weight(name: str, done: int) -> float:
    """Draws rare verbs more often, and verbs that have not run yet most often, so that even short runs cover most of
    them."""
    often = _OFTEN.get(name, 1)
    return often / (1 + done / often) ** 2 if done else 5 * often


def _end(lives: Workload, house: ModelStore, trace: list[str]) -> None:
    """Checks that collection removes exactly the unreferenced data; then deletes one stream after the other."""
    for each in [each for each in lives.transactions if each.house is house]:
        lives_joining.abort(each)
    _collect_all(lives, house)
    house.judge()
    house.judge_storage()
    for known in list(house.streams):
        house.store.streams.delete(known.name)
        house.end(known)
        trace.append(f"  end  {known.name} goes")
        _collect_all(lives, house)
        house.judge()
        house.judge_storage()
    house.judge_empty()


def _collect_all(lives: Workload, house: ModelStore) -> None:
    """Collects twice: what one collection marks as dead is removed by a later one."""
    for _ in range(3):
        lives.clock.micros += SECOND
        house.store.collect(horizon_us=0)


def main(arguments: Sequence[str]) -> int:
    """Runs the given number of seeds. Returns 1 at the first violation, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation algebra",
        description=_TEXT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="the first seed (default: from the clock, and printed)")
    parser.add_argument("--steps", type=_positive, default=200, help="operations of a run (default: 200)")
    parser.add_argument("--runs", type=_positive, default=1, help="how many seeds, counted up (default: 1)")
    parser.add_argument("--trace", action="store_true", help="show every step (a failure shows the last 40)")
    options = parser.parse_args(arguments)
    seed = int(time.time()) % 1_000_000 if options.seed is None else options.seed
    total: Counter[str] = Counter()
    try:
        for each in range(seed, seed + options.runs):
            run = live(each, options.steps)
            total.update(run.done)
            if options.trace or run.error is not None:
                print("\n".join(run.trace if options.trace else run.trace[-40:]))
            if run.error is not None:
                traceback.print_exception(run.error)
                print(f"\nVIOLATION with seed {each}: {run.error}\nreplay it with:\n  {run.replay}")
                return 1
            print(f"seed {each}: sound. {options.steps:,} operations", flush=True)
    except KeyboardInterrupt:
        print("interrupted; what ran until here was sound")
        return 130
    if options.runs > 1:
        print("\n".join(f"  {count:>9,}  {what.replace('_', ' ')}" for what, count in sorted(total.items())))
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a number above 0")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
