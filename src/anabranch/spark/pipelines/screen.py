"""Shows a running pipeline in the terminal: a live table on a TTY, text lines elsewhere, or JSON lines on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TextIO

from anabranch.core.terminal import terminal_text
from anabranch.errors.optional import optional
from anabranch.model.amounts import size_text
from anabranch.model.seconds import check_seconds
from anabranch.spark.pipelines.progress import QueryProgress
from anabranch.spark.pipelines.run import Pipeline

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["clock_text", "progress_table", "watch"]

REFRESH_S: Final = 0.25
LINES_S: Final = 2.0


def watch(
    pipeline: Pipeline,
    *,
    seconds: float | None = None,
    as_json: bool = False,
    quiet: bool = False,
    out: TextIO | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Show progress until the pipeline ends, `seconds` have passed or `stopped` is True; then let it finish the
    micro-batches in progress, and return when it has ended.

    Writes to `out` (default: stderr, so that stdout holds only results), or with `as_json` JSON lines to stdout. A
    warning about a run that loses many late events always goes to `out`, even with `quiet`. Raises PipelineFailed,
    InvalidArgument.
    """
    if seconds is not None:
        check_seconds("seconds", seconds)
    clock = pipeline.store.runtime.clock
    deadline = None if seconds is None else clock.monotonic() + seconds
    with _shown(pipeline, out or sys.stderr, as_json=as_json, quiet=quiet) as show:
        asked = False
        while True:
            left = REFRESH_S if deadline is None or asked else min(REFRESH_S, deadline - clock.monotonic())
            if left > 0 and pipeline.await_termination(left):
                break
            if not asked and (left <= 0 or stopped()):
                asked = True
                pipeline.finish()
            show(pipeline.progress())
        show(pipeline.last_progress, last=True)


class _Show:
    """Called with each new progress. Prints warnings about late events, even if progress is not shown."""

    def __init__(self, out: TextIO) -> None:
        self._errors = out
        self._warned: set[str] = set()

    def __call__(self, progress: Sequence[QueryProgress], *, last: bool = False) -> None:
        """Show it; `last` marks the end."""
        for each in progress:
            if (last or each.target not in self._warned) and (warning := each.warning) is not None:
                self._warned.add(each.target)
                print(f"warning: {warning}", file=self._errors, flush=True)


class _PlainLines(_Show):
    def __init__(self, pipeline: Pipeline, out: TextIO, errors: TextIO, *, as_json: bool) -> None:
        super().__init__(errors)
        self._name = pipeline.name
        self._clock = pipeline.store.runtime.clock
        self._out = out
        self._as_json = as_json
        self._due = 0.0
        self._reported: dict[str, tuple[Any, ...]] = {}

    def __call__(self, progress: Sequence[QueryProgress], *, last: bool = False) -> None:
        now = self._clock.monotonic()
        if now < self._due and not last:
            return
        self._due = now + LINES_S
        for each in progress:
            news = (each.state, each.batch, each.read, each.lag, each.written, each.watermark_us)
            if self._reported.get(each.target) != news or last:
                self._reported[each.target] = news
                print(self._json(each) if self._as_json else terminal_text(line_of(each)), file=self._out, flush=True)
        super().__call__(progress, last=last)

    def _json(self, each: QueryProgress) -> str:
        at = datetime.fromtimestamp(self._clock.now() / 1e6, UTC).isoformat()
        return json.dumps({"pipeline": self._name, "at": at, **each.as_json()})


class _Table(_Show):
    def __init__(self, pipeline: Pipeline, out: TextIO, live: Any) -> None:
        super().__init__(out)
        self._title = f"pipeline {plain(pipeline.name)}"
        self._live = live

    def __call__(self, progress: Sequence[QueryProgress], *, last: bool = False) -> None:
        table = progress_table(progress, title=self._title, width=self._live.console.width)
        self._live.update(table, refresh=last)


@contextmanager
def _shown(pipeline: Pipeline, out: TextIO, *, as_json: bool, quiet: bool) -> Iterator[_Show]:
    if quiet:
        yield _Show(out)
    elif as_json or not out.isatty():
        yield _PlainLines(pipeline, sys.stdout if as_json else out, out, as_json=as_json)
    else:
        with optional("the live table", "cli"):
            from rich.console import Console
            from rich.live import Live
        console: Console = Console(file=out)
        with Live(console=console, auto_refresh=True, refresh_per_second=4) as live:
            yield _Table(pipeline, out, live)


# texts


def progress_table(progress: Sequence[QueryProgress], *, title: str | None = None, width: int = 100) -> RenderableType:
    """A table with one row for each statement, and warnings below it. If `width` is too small for all columns, it omits
    the less important ones."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

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
    warnings = [Text(f"warning: {each.warning}", style="bold red") for each in progress if each.warning is not None]
    return Group(table, *warnings) if warnings else table


class _TableColumn(NamedTuple):
    name: str
    text: Callable[[QueryProgress], str]
    only_wide: bool = False
    justify: Literal["left", "right"] = "right"
    style: str = ""


def line_of(each: QueryProgress) -> str:
    """One statement as a line of text."""
    if each.batch < 0:
        return f"{each.target}: {each.state}, lag {each.lag:,}"
    shed = f", shed {each.run_shed:,}" if each.run_shed else ""
    return (
        f"{each.target}: {each.state}, {each.rows_per_s:,.0f} events/s, read {each.read:,}, lag {each.lag:,}, "
        f"written {each.written:,}, late {each.late:,}{shed}, watermark {clock_text(each.watermark_us)}, "
        f"state {each.state_rows:,} rows ({size_text(each.state_bytes)}), batch {each.batch} in {each.batch_ms:,} ms"
    )


_COLOURS: Final = {"running": "green", "ended": "green", "failed": "red", "starting": "yellow"}


def plain(text: str) -> str:
    """Untrusted text for a rich table: markup and terminal control characters are neutralised."""
    from rich.markup import escape

    return escape(terminal_text(text))


def _state(each: QueryProgress) -> str:
    return f"[{_COLOURS.get(each.state, 'white')}]{plain(each.state)}[/]"


WIDE: Final = 115
_COLUMNS: Final = (
    _TableColumn("result stream", lambda each: plain(each.target), justify="left", style="cyan"),
    _TableColumn("state", _state, only_wide=True, justify="left"),
    _TableColumn("events/s", lambda each: f"{each.rows_per_s:,.0f}"),
    _TableColumn("read", lambda each: f"{each.read:,}", only_wide=True),
    _TableColumn("lag", lambda each: f"{each.lag:,}"),
    _TableColumn("written", lambda each: f"{each.written:,}"),
    _TableColumn("late", lambda each: f"{each.late:,}"),
    _TableColumn("shed", lambda each: f"{each.run_shed:,}" if each.run_shed else "-", only_wide=True),
    _TableColumn("watermark", lambda each: clock_text(each.watermark_us)),
    _TableColumn("in state", lambda each: f"{each.state_rows:,}" if each.state_rows else "-"),
    _TableColumn("state size", lambda each: size_text(each.state_bytes) if each.state_bytes else "-", only_wide=True),
    _TableColumn("batch", lambda each: f"{each.batch:,}" if each.batch >= 0 else "-", only_wide=True),
    _TableColumn("took", lambda each: f"{each.batch_ms:,} ms" if each.batch >= 0 else "-"),
)


def clock_text(micros: int | None) -> str:
    """A time to display, in UTC: the time of day if it is within a day of now, else with its date; `-` for None."""
    if micros is None:
        return "-"
    moment = datetime.fromtimestamp(micros / 1e6, UTC)
    near = abs((datetime.now(UTC) - moment).total_seconds()) < 86_400
    return moment.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M:%S")
