"""The table of `anabranch queries top`: one row for each statement of each deployed query, for each stateful operator, or
for each segment that is read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.output import iso_time
from anabranch.core.terminal import terminal_text
from anabranch.errors.optional import optional
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from anabranch.deployments.info import QueryInfo

__all__ = ["TABLES", "watch"]

_STATEMENTS_HEADER: Final = (
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
)
_OPERATORS_HEADER: Final = ("QUERY", "RESULT", "OPERATOR", "ROWS", "SIZE", "UPDATED", "COMMIT", "DROPPED")
_SEGMENTS_HEADER: Final = ("QUERY", "RESULT", "STREAM", "SEGMENT", "LAG", "EVENT TIME", "SKEW")
_LEFT_OUT: Final = (
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
) + (
    "UPDATED",
    "COMMIT",
)
"""Columns that a narrow terminal has no room for, in this order."""
_GAP: Final = 2  # between two columns


def _statement_rows(found: Sequence[QueryInfo]) -> Iterator[tuple[Any, ...]]:
    """A row for each statement, and one for a query that has none yet."""
    for info in found:
        if not info.progress:
            yield (info.name, info.state, info.standby_state or "-", *("-",) * (len(_STATEMENTS_HEADER) - 3))
        for each in info.progress:
            yield (
                info.name,
                info.state,
                info.standby_state or "-",
                each["target"],
                round(each.get("rows_per_s", 0)),
                each.get("lag", 0),
                f"{each.get('lag_s', 0):.1f} s",
                iso_time(each.get("watermark_us")) or "-",
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
                    iso_time(each["event_time_us"]) or "-",
                    "-" if each["skew_s"] is None else f"{each['skew_s']:,.1f} s",
                )


TABLES: Final[Mapping[str, tuple[Sequence[str], Callable[[Sequence[QueryInfo]], Iterator[tuple[Any, ...]]]]]] = {
    "statements": (_STATEMENTS_HEADER, _statement_rows),
    "operators": (_OPERATORS_HEADER, _operator_rows),
    "segments": (_SEGMENTS_HEADER, _segment_rows),
}
"""By what has a row: the header, and a function that makes the rows of queries."""


def watch(
    look: Callable[[], tuple[Sequence[str], list[tuple[Any, ...]]]],
    stopped: Callable[[float], bool],
    interval_s: float,
) -> None:
    """Show in the terminal what `look` returns, a header and rows, until `stopped`, which waits for so many seconds."""
    with optional("the live table", "cli"):
        from rich.console import Console
        from rich.live import Live
    console = Console(file=sys.stdout)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        live.update(_table(*look(), console.width), refresh=True)
        while not stopped(interval_s):
            live.update(_table(*look(), console.width), refresh=True)


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

    texts = [[f"{cell:,}" if isinstance(cell, int) else terminal_text(str(cell)) for cell in row] for row in found]
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
