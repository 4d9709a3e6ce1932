"""What is said when the demo is over: what was done, the proof, and what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import median
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from anabranch.spark.demo.proof import Proof, WindowCount
from anabranch.spark.pipeline_progress import QueryProgress
from anabranch.spark.pipeline_screen import clock_text

__all__ = ["next_steps", "summary", "tell_proof"]

WINDOWS_SHOWN: Final = 6


def summary(
    console: Console,
    *,
    source: str,
    written: int,
    progress: Sequence[QueryProgress],
    batch_ms: Sequence[int],
) -> None:
    """What was written, read and aggregated in this run."""
    console.print(f"[bold]{written:,}[/] events were written to [cyan]{source}[/] in this run.", soft_wrap=True)
    for each in progress:
        console.print(
            f"  [cyan]{each.target}[/]: {each.read:,} events read so far, {each.lag:,} to be read, "
            f"{each.late:,} late; {each.written:,} rows written.",
            soft_wrap=True,
        )
    if batch_ms:
        console.print(f"  A micro-batch took {median(batch_ms):,.0f} ms at the median, {max(batch_ms):,} ms at most.")


def tell_proof(console: Console, proofs: Sequence[Proof]) -> bool:
    """Print the proof; True if it holds."""
    console.print()
    console.print("[bold]The proof:[/] for every closed window of this store, Spark's count and the late")
    console.print("events together are the events in the store, counted anew without Spark.")
    for proof in proofs:
        _table(console, proof)
    wrong = [window for proof in proofs for window in proof.windows if not window.ok]
    closed = sum(len(proof.windows) for proof in proofs)
    if wrong:
        console.print(f"[bold red]{len(wrong)} of {closed} windows differ.[/]")
    elif closed:
        console.print(f"[bold green]All {closed} windows agree.[/]")
    else:
        console.print("[yellow]No window was closed yet, so there is nothing to prove; let it run for longer.[/]")
    return not wrong


def _table(console: Console, proof: Proof) -> None:
    claim = proof.claim
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"window of {claim.target}", no_wrap=True, style="cyan")
    for name in ("Spark", "late", "store"):
        table.add_column(name, justify="right")
    table.add_column("ok")
    for window in _shown(proof.windows):
        if window is None:
            table.add_row("…", "", "", "", "")
            continue
        bounds = f"{clock_text(window.start_us)}–{clock_text(window.end_us).rpartition(' ')[2]}"
        mark = "[green]✓[/]" if window.ok else "[bold red]✗[/]"
        table.add_row(bounds, f"{window.spark:,}", f"{window.late:,}", f"{window.store:,}", mark)
    if proof.windows:
        table.add_section()
        sums = (sum(getattr(window, name) for window in proof.windows) for name in ("spark", "late", "store"))
        table.add_row(f"all {len(proof.windows)} closed windows", *(f"{each:,}" for each in sums), "")
    console.print(table)
    notes = [f"{proof.read:,} events read"]
    if proof.open:
        notes.append(f"{proof.open} windows still open: later events close them")
    if proof.unread:
        notes.append(f"{proof.unread:,} events not read yet: the next run goes on there")
    if proof.untimed:
        notes.append(f"{proof.untimed:,} events without a time, so in no window")
    console.print("  " + "; ".join(notes), style="dim")


def _shown(windows: Sequence[WindowCount]) -> list[WindowCount | None]:
    """The wrong ones and the last, None where some are left out."""
    chosen: list[WindowCount | None] = []
    for index, window in enumerate(windows):
        if index >= len(windows) - WINDOWS_SHOWN or not window.ok:
            chosen.append(window)
        elif not chosen or chosen[-1] is not None:
            chosen.append(None)
    return chosen


def next_steps(console: Console, *, store: str, source: str, results: str | None, key: str | None) -> None:
    """Three things to type; `results` is None where Spark has not come that far."""
    stream = results or source
    table, summed = stream.replace("/", "."), "sum(events)" if results else "count(*)"
    query = f"SELECT {summed} FROM {table}"
    if key:
        query = f'SELECT "{key}", {summed} FROM {table} GROUP BY "{key}" ORDER BY 2 DESC LIMIT 10'
    console.print()
    console.print("Try next:")
    for verb in (f"read {stream} --limit 10", f"query {shlex.quote(query)}", "check"):
        console.print(f"  [bold]anabranch --store {shlex.quote(store)} {verb}[/]", soft_wrap=True, highlight=False)
