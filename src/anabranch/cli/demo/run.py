"""Runs the demo: an ordinary pipeline over new events, shown as it runs, and a check of its counts."""

from __future__ import annotations

import os
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Final

from anabranch.cli.demo import proof, user_file
from anabranch.cli.demo.measure import STREAM, Collector
from anabranch.cli.formats import Format
from anabranch.cli.interrupts import interrupts
from anabranch.cli.output import counted, print_columns, put_line
from anabranch.cli.render.result import render
from anabranch.core.redact import shown_address
from anabranch.spark.pipelines.run import Pipeline
from anabranch.spark.pipelines.run import run as start_pipeline
from anabranch.spark.pipelines.screen import clock_text, watch
from anabranch.store import Store, connect

STORE: Final = "./anabranch-demo"
SECONDS: Final = 60.0
ROWS_SHOWN: Final = 8


def run(
    store: str | os.PathLike[str] = STORE,
    *,
    seconds: float | None = None,
    file: Path | None = None,
    time: str | None = None,
    key: str | None = None,
) -> bool:
    """Write, aggregate, show and prove. Returns whether the proof holds.

    Aggregates this machine's measurements for `seconds` (default 60; 0: until Ctrl-C), or a `file` until its end.
    `time` and `key` name columns of the file, if they are not detected correctly.

    Ctrl-C ends it cleanly at any time; a later run with the same store continues where this one stopped. Raises
    InvalidArgument for a file that can't be used, PipelineRunning if the store's demo is already running.
    """
    with interrupts() as interrupted, connect(store, create=True) as opened:
        if file is None:
            sql = host_sql()
            collector = Collector(opened)
            try:
                pipeline = _start(opened, "demo", sql)
                with pipeline:
                    if not interrupted.is_set():
                        length = SECONDS if seconds is None else seconds or None
                        watch(pipeline, seconds=length, stopped=interrupted.is_set)
            finally:
                collector.close()
            put_line(f"{counted(collector.events, 'event')} were written to {STREAM} in this run.")
        else:
            rows = user_file.load(file, time=time, key=key)
            rows.write(opened)
            sql = rows.sql
            pipeline = _start(opened, f"demo-{rows.name}", sql, events_max=rows.batch_rows, once=True)
            with pipeline:
                if not interrupted.is_set():
                    watch(pipeline, seconds=seconds or None, stopped=interrupted.is_set)
        claims = proof.claims(sql)
        _show_results(pipeline, claims[0].target)
        holds = _show_proofs([proof.prove_pipeline(opened, pipeline, claim) for claim in claims])
        _show_next_steps(opened, claims[0])
        return holds


def host_sql() -> str:
    """The built-in pipeline over this machine's measurements."""
    return files("anabranch.cli.demo").joinpath("host.sql").read_text()


def _start(store: Store, name: str, sql: str, *, events_max: int | None = None, once: bool = False) -> Pipeline:
    put_line("starting Spark …", flush=True)
    return start_pipeline(store, sql, name=name, events_max=events_max, once=once)


def _show_results(pipeline: Pipeline, target: str) -> None:
    rows = pipeline.collect(target)
    if rows.num_rows:
        put_line()
        put_line(f"The last rows of {target}:", bold=True)
        render(rows.slice(max(rows.num_rows - ROWS_SHOWN, 0)).to_batches(), rows.schema, Format.table)


def _show_proofs(proofs: list[proof.Proof]) -> bool:
    put_line()
    put_line("The proof", bold=True)
    put_line(
        "For every closed window, Spark's count plus the late events equals the count of the window's events in the"
    )
    put_line("store, counted again without Spark.")
    for each in proofs:
        _show_windows(each)
    windows = [window for each in proofs for window in each.windows]
    wrong = sum(not window.ok for window in windows)
    put_line()
    if wrong:
        put_line(f"{wrong} of {len(windows)} windows differ.", bold=True)
    elif windows:
        put_line(f"All {len(windows)} windows agree.", bold=True)
    else:
        put_line("No window was closed yet, so there is nothing to prove; let it run for longer.")
    return not wrong


def _show_windows(each: proof.Proof) -> None:
    """The wrong windows and the last ones, and the sums of all."""
    last = each.windows[-ROWS_SHOWN:]
    shown = [window for window in each.windows if window in last or not window.ok]
    rows: list[tuple[object, ...]] = [
        (clock_text(w.start_us), clock_text(w.end_us), w.spark, w.late, w.store, "yes" if w.ok else "NO") for w in shown
    ]
    sums = [sum(getattr(window, name) for window in each.windows) for name in ("spark", "late", "store")]
    rows.append((f"all {len(each.windows):,}", "", *sums, "yes" if each.ok else "NO"))
    put_line()
    print_columns((f"WINDOW OF {each.claim.target}", "TO", "SPARK", "LATE", "STORE", "EQUAL"), rows)
    notes = [f"{each.read:,} events read"]
    if each.open:
        notes.append(f"{each.open} windows still open: later events close them")
    if each.unread:
        notes.append(f"{each.unread:,} events not read yet: the next run continues there")
    if each.untimed:
        notes.append(f"{each.untimed:,} events without a time, so in no window")
    put_line("; ".join(notes))


def _shown_place(url: str) -> str:
    """The store's address for a command line: as short as possible for a folder, without a password for a URL."""
    if "://" in url:
        return shown_address(url)
    relative = os.path.relpath(url)
    return url if relative.startswith("..") else f"./{relative}"


def _show_next_steps(store: Store, claim: proof.Claim) -> None:
    place = shlex.quote(_shown_place(store.url))
    query = shlex.quote(f"SELECT sum(events) FROM {claim.target.replace('/', '.')}")
    put_line()
    put_line("Try next:")
    for verb in (f"read {claim.target} --limit 10", f"query {query}", "check"):
        put_line(f"  anabranch --store {place} {verb}")
