"""Shows live figures of the queries: a row for each statement, each stateful operator, or each segment that is read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import iso_time, print_columns, print_json, text_of
from anabranch.cli.queries.info import progress_to_json
from anabranch.core.terminal import terminal_text
from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from anabranch.deployments.info import QueryInfo


def top(
    names: list[str] | None = argument("[NAME]…", "These queries; default: all.", default=None),
    operators: bool = flag("--operators", "A row for each stateful operator, instead of for each statement."),
    segments: bool = flag("--segments", "A row for each segment of the streams that a statement reads."),
    once: bool = flag("--once", "Print once, and end: the default without a terminal."),
    interval: str = option("--interval", "DURATION", "Time between two updates.", default="1s"),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show the progress of the deployed queries, until Ctrl-C: rates, lag, watermark, state, late events and micro-batches.

    LAG counts the events that are still to be read, and BEHIND is the age of the oldest. LATE counts events of this run
    that came too late for their windows. STANDBY is the state of a hot standby: ready to take over, behind (it
    starts, or does not keep up), refused or none. With --segments, SKEW is by how much the event time up to which a
    segment is read is behind the foremost segment of its stream.

    Examples:

      anabranch queries top
      anabranch queries top means --operators --once
      anabranch queries top means --segments
      anabranch queries top --json | jq '.[] | select(.lag_s > 60) | .query'
    """
    from anabranch.model.amounts import to_duration

    interval_s = to_duration(interval) / 1e6
    if operators and segments:
        raise InvalidArgument("give --operators or --segments, not both")
    header, rows_of = _STATEMENTS_HEADER, _statement_rows
    if operators:
        header, rows_of = _OPERATORS_HEADER, _operator_rows
    elif segments:
        header, rows_of = _SEGMENTS_HEADER, _segment_rows
    with open_store() as opened:

        def look() -> list[QueryInfo]:
            return [opened.queries.get(name) for name in names] if names else list(opened.queries.list())

        if as_json:
            print_json([{"query": info.name, **progress_to_json(each)} for info in look() for each in info.progress])
        elif once or not sys.stdout.isatty():
            print_columns(header, list(rows_of(look())))
        else:
            from anabranch.cli.interrupts import interrupts

            with interrupts() as interrupted:
                _watch(header, lambda: list(rows_of(look())), interrupted.wait, interval_s)


_STATEMENTS_HEADER: Final = [
    "QUERY",
    "STATE",
    "STANDBY",
    "RESULT",
    "ROWS/S",
    "LAG",
    "BEHIND",
    "WATERMARK",
    "STATE ROWS",
    "STATE SIZE",
    "LATE",
    "SHED",
    "BATCH",
    "TOOK",
]
_OPERATORS_HEADER: Final = ["QUERY", "RESULT", "OPERATOR", "ROWS", "SIZE", "UPDATED", "COMMIT", "DROPPED"]
_SEGMENTS_HEADER: Final = ["QUERY", "RESULT", "STREAM", "SEGMENT", "LAG", "EVENT TIME", "SKEW"]
_LEFT_OUT: Final = (  # columns that a narrow terminal has no room for, in this order
    [
        "STANDBY",
        "BATCH",
        "STATE ROWS",
        "SHED",
        "LATE",
        "TOOK",
        "STATE SIZE",
        "RESULT",
        "WATERMARK",
        "BEHIND",
        "UPDATED",
        "COMMIT",
    ]
)
_GAP: Final = 2  # between two columns


def _statement_rows(found: Sequence[QueryInfo]) -> Iterator[tuple[Any, ...]]:
    """A row for each statement, and one for a query that has none yet."""
    for info in found:
        if not info.progress:
            yield (info.name, info.state, info.standby_state, *(None,) * (len(_STATEMENTS_HEADER) - 3))
        for each in info.progress:
            yield (
                info.name,
                info.state,
                info.standby_state,
                each["target"],
                round(each.get("rows_per_s", 0)),
                each.get("lag", 0),
                f"{each.get('lag_s', 0):.1f} s",
                iso_time(each.get("watermark_us")),
                each.get("state_rows", 0),
                size_text(each.get("state_bytes", 0)),
                each.get("run_late", 0),
                each.get("run_shed", 0),
                each.get("batch", -1),
                f"{each.get('batch_ms', 0):,} ms",
            )


def _operator_rows(found: Sequence[QueryInfo]) -> Iterator[tuple[Any, ...]]:
    """A row for each stateful operator."""
    for info in found:
        for statement in info.progress:
            for each in statement.get("operators", ()):
                yield (
                    info.name,
                    statement["target"],
                    each["operator"],
                    each["rows"],
                    size_text(each["bytes"]),
                    each["updated"],
                    f"{each['commit_ms']:,} ms",
                    each["dropped"],
                )


def _segment_rows(found: Sequence[QueryInfo]) -> Iterator[tuple[Any, ...]]:
    """A row for each segment of each stream that a statement reads."""
    for info in found:
        for statement in info.progress:
            for each in statement.get("segments", ()):
                yield (
                    info.name,
                    statement["target"],
                    each["stream"],
                    each["segment"],
                    each["lag"],
                    iso_time(each["event_time_us"]),
                    None if each["skew_s"] is None else f"{each['skew_s']:,.1f} s",
                )


def _watch(
    header: Sequence[str],
    rows: Callable[[], list[tuple[Any, ...]]],
    stopped: Callable[[float], bool],
    interval_s: float,
) -> None:
    """Show the rows as a table in the terminal until `stopped`, which waits for so many seconds."""
    with optional("the live table", "cli"):
        from rich.console import Console
        from rich.live import Live
    console = Console(file=sys.stdout)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        live.update(_table(header, rows(), console.width), refresh=True)
        while not stopped(interval_s):
            live.update(_table(header, rows(), console.width), refresh=True)


def _fitting(header: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> list[int]:
    """Which columns a terminal of this width has room for, of those with these texts."""
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    chosen = list(range(len(header)))
    for name in _LEFT_OUT:
        if sum(widths[index] for index in chosen) + _GAP * (len(chosen) - 1) <= width:
            break
        chosen = [index for index in chosen if header[index] != name]
    return chosen


def _table(header: Sequence[str], found: Sequence[tuple[Any, ...]], width: int) -> RenderableType:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    texts = [[terminal_text(text_of(cell)) for cell in row] for row in found]
    chosen = _fitting(header, texts, width)
    hidden = [name for index, name in enumerate(header) if index not in chosen]
    caption = f"no room for {', '.join(hidden)}" if hidden else None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    for index in chosen:
        numbers = bool(found) and all(isinstance(row[index], int) for row in found)
        table.add_column(header[index], justify="right" if numbers else "left", no_wrap=True)
    for row in texts:
        table.add_row(*(escape(row[index]) for index in chosen))
    return table
