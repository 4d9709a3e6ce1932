"""`./dev torture`: real processes, real signals, real servers, and a report."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from torture.brokers import BrokerRun
from torture.conductor import Report, Run
from torture.store_kinds import BROKERS, NAMES, place

_PLACES: Final = (*NAMES, *(f"{BROKERS}{name}" for name in NAMES))
_FAILOVERS: Final = 6
_LINES_S: Final = 10.0  # between two lines of progress, where there is no terminal
_BESIDE_S: Final = 900.0  # for all that is not torture itself: starting, ending, judging


def main(arguments: Sequence[str] | None = None) -> int:
    """Tortures every place for its share of the time. Returns 1 if anything was violated."""
    options = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    places = options.place or _PLACES
    reports = []
    for name in places:
        reports.append(_torture(name, seed, 60 * options.minutes / len(places)))
        if not options.json:
            _show(reports[-1])
    if options.json:
        print(json.dumps([asdict(report) for report in reports]))
    return 1 if any(report.violations for report in reports) else 0


def _torture(name: str, seed: int, seconds: float) -> Report:
    folder = Path(tempfile.mkdtemp(prefix="anabranch-torture-", dir="/var/tmp"))
    try:
        with _hard_end(seconds + _BESIDE_S), place(name.removeprefix(BROKERS), folder) as (there, servers):
            if name.startswith(BROKERS):
                report = BrokerRun(name, there, folder, seed).run(seconds, _progress(), failovers=_FAILOVERS)
            else:
                report = Run(name, there, folder, seed, servers).run(seconds, _progress())
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
    if report.violations:
        print(f"the store and the logs of its processes are kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return report


@contextmanager
def _hard_end(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the main thread after that time, wherever it waits: the run's processes and servers are
    then ended as after Ctrl-C."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"the run did not end within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _progress() -> Callable[[Report], None]:
    """Returns a function that shows the progress on stderr: in place on a terminal, else in a line for each phase and
    every few seconds."""
    terminal = sys.stderr.isatty()
    shown, due = "", 0.0

    def show(report: Report) -> None:
        nonlocal shown, due
        if not terminal and report.phase == shown and time.monotonic() < due:
            return
        shown, due = report.phase, time.monotonic() + _LINES_S
        faults = sum(report.faults.values())
        line = f"{report.place}: {report.phase}, {report.seconds:.0f} s, {faults:,} faults"
        print(f"\r\x1b[K{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    return show


def _show(report: Report) -> None:
    print(f"{report.place}, {report.seconds:.0f} s, seed {report.seed}")
    sections: tuple[tuple[str, Counter[str]], ...] = (
        ("faults", report.faults),
        ("events", report.counts),
        ("operations done, and errors that processes survived", report.met),
    )
    for title, counts in sections:
        print(f"  {title}")
        for what, number in sorted(counts.items()):
            print(f"    {number:>9,}  {what}")
    for text in report.left_out:
        print(f"  not possible here: {text}")
    print(f"  violations: {len(report.violations)}")
    for text in report.violations:
        print(f"    {text}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev torture",
        description="Kill and stop real processes, and set their clocks, while they write, follow, scale, copy, append, rename, truncate, "
        "compact, collect, run transactions and read in a group; cut their power, fill their disk, and fail the "
        "servers they use; the same for two brokers, behind a network that cuts, stalls and repeats; then compare the store with the answers that they got.",
        epilog="exit code: 0 nothing was violated, 1 something was, 2 wrong arguments",
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long, over all places (default: 2)")
    parser.add_argument("--seed", type=int, help="of the faults; their timing depends on the machine all the same")
    parser.add_argument("--place", choices=_PLACES, action="append", help="only this; may be repeated (default: all)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
