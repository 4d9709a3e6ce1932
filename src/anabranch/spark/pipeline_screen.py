"""A running pipeline in the terminal: a table that lives on a TTY, lines elsewhere, JSON lines for a program."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TextIO

from anabranch.errors import MissingExtra
from anabranch.spark.pipeline import Pipeline
from anabranch.spark.pipeline_progress import QueryProgress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["clock_text", "interrupts", "progress_table", "size_text", "watch"]

REFRESH_S: Final = 0.25
LINES_S: Final = 2.0


def watch(
    pipeline: Pipeline,
    *,
    seconds: float | None = None,
    as_json: bool = False,
    quiet: bool = False,
    out: TextIO | None = None,
) -> None:
    """Show progress until the pipeline ends, `seconds` have passed or Ctrl-C is pressed; then stop it and return.

    Shows it on `out` (default: stderr, so that results on stdout stay alone), or with `as_json` as lines on stdout.
    Raises PipelineFailed.
    """
    clock = pipeline.store.runtime.clock
    deadline = None if seconds is None else clock.monotonic() + seconds
    with interrupts() as interrupted, _shown(pipeline, out or sys.stderr, as_json=as_json, quiet=quiet) as show:
        while not interrupted.is_set():
            left = REFRESH_S if deadline is None else min(REFRESH_S, deadline - clock.monotonic())
            if left <= 0 or pipeline.await_termination(left):
                break
            show(pipeline.progress())
        pipeline.stop()
        pipeline.await_termination()
        show(pipeline.last_progress, last=True)


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """An event that Ctrl-C (or SIGTERM) sets. A second Ctrl-C interrupts as usual.

    Spark's own handler would cancel the jobs under way, which looks like a failure of the query.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Show:
    """Called with each new progress."""

    def __call__(self, progress: Sequence[QueryProgress], *, last: bool = False) -> None:
        """Show it; `last` marks the end."""


class _Lines(_Show):
    def __init__(self, pipeline: Pipeline, out: TextIO, *, as_json: bool) -> None:
        self._name = pipeline.name
        self._clock = pipeline.store.runtime.clock
        self._out = out
        self._as_json = as_json
        self._due = 0.0
        self._told: dict[str, tuple[Any, ...]] = {}

    def __call__(self, progress: Sequence[QueryProgress], *, last: bool = False) -> None:
        now = self._clock.monotonic()
        if now < self._due and not last:
            return
        self._due = now + LINES_S
        for each in progress:
            news = (each.state, each.batch, each.read, each.lag, each.written, each.watermark_us)
            if self._told.get(each.target) != news or last:
                self._told[each.target] = news
                print(self._json(each) if self._as_json else line_of(each), file=self._out, flush=True)

    def _json(self, each: QueryProgress) -> str:
        at = datetime.fromtimestamp(self._clock.now() / 1e6, UTC).isoformat()
        return json.dumps({"pipeline": self._name, "at": at, **each.as_json()})


class _Table(_Show):
    def __init__(self, pipeline: Pipeline, live: Any) -> None:
        self._title = f"pipeline {pipeline.name}"
        self._live = live

    def __call__(self, progress: Sequence[QueryProgress], *, last: bool = False) -> None:
        table = progress_table(progress, title=self._title, width=self._live.console.width)
        self._live.update(table, refresh=last)


@contextmanager
def _shown(pipeline: Pipeline, out: TextIO, *, as_json: bool, quiet: bool) -> Iterator[_Show]:
    if quiet:
        yield _Show()
    elif as_json or not out.isatty():
        yield _Lines(pipeline, sys.stdout if as_json else out, as_json=as_json)
    else:
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError as exc:
            raise MissingExtra("the live table", "cli") from exc
        console: Console = Console(file=out)
        with Live(console=console, auto_refresh=True, refresh_per_second=4) as live:
            yield _Table(pipeline, live)


# texts


def progress_table(progress: Sequence[QueryProgress], *, title: str | None = None, width: int = 100) -> RenderableType:
    """One row for each statement; where `width` columns are too few for all, the more telling ones."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title_style="bold",
    )
    shown = [column for column in _COLUMNS if width >= WIDE or not column.only_wide]
    for column in shown:
        table.add_column(column.name, justify=column.justify, style=column.style, no_wrap=True)
    for each in progress:
        table.add_row(*(column.text(each) for column in shown))
    return table


class _Column(NamedTuple):
    name: str
    text: Callable[[QueryProgress], str]
    only_wide: bool = False
    justify: Literal["left", "right"] = "right"
    style: str = ""


def line_of(each: QueryProgress) -> str:
    """One statement as a line of text."""
    if each.batch < 0:
        return f"{each.target}: {each.state}, lag {each.lag:,}"
    return (
        f"{each.target}: {each.state}, {each.rows_per_s:,.0f} events/s, read {each.read:,}, lag {each.lag:,}, "
        f"written {each.written:,}, late {each.late:,}, watermark {clock_text(each.watermark_us)}, "
        f"state {each.state_rows:,} rows ({size_text(each.state_bytes)}), batch {each.batch} in {each.batch_ms:,} ms"
    )


_COLOURS: Final = {"running": "green", "ended": "green", "failed": "red", "starting": "yellow"}


def _state(each: QueryProgress) -> str:
    return f"[{_COLOURS.get(each.state, 'white')}]{each.state}[/]"


WIDE: Final = 115
_COLUMNS: Final = (
    _Column("result stream", lambda each: each.target, justify="left", style="cyan"),
    _Column("state", _state, only_wide=True, justify="left"),
    _Column("events/s", lambda each: f"{each.rows_per_s:,.0f}"),
    _Column("read", lambda each: f"{each.read:,}", only_wide=True),
    _Column("lag", lambda each: f"{each.lag:,}"),
    _Column("written", lambda each: f"{each.written:,}"),
    _Column("late", lambda each: f"{each.late:,}"),
    _Column("watermark", lambda each: clock_text(each.watermark_us)),
    _Column("in state", lambda each: f"{each.state_rows:,}" if each.state_rows else "-"),
    _Column("state size", lambda each: size_text(each.state_bytes) if each.state_bytes else "-", only_wide=True),
    _Column("batch", lambda each: f"{each.batch:,}" if each.batch >= 0 else "-", only_wide=True),
    _Column("took", lambda each: f"{each.batch_ms:,} ms" if each.batch >= 0 else "-"),
)


def clock_text(micros: int | None) -> str:
    """A moment for the eye: its time of day if it lies within a day of now, else its date too; UTC."""
    if micros is None:
        return "-"
    moment = datetime.fromtimestamp(micros / 1e6, UTC)
    near = abs((datetime.now(UTC) - moment).total_seconds()) < 86_400
    return moment.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M:%S")


def size_text(count: float) -> str:
    """Bytes as people write them."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.0f} {units[0]}" if units[0] == "B" or count >= 100 else f"{count:.1f} {units[0]}"
