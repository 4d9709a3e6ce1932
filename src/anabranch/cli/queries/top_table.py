"""The table of `anabranch queries top`: one row for each statement of each deployed query, or for each stateful operator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.output import iso_time
from anabranch.core.terminal import terminal_text
from anabranch.errors.optional import optional
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from anabranch.deployments.info import QueryInfo

__all__ = ["HEADER", "OPERATORS_HEADER", "operator_rows", "rows", "watch"]

HEADER: Final = (
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
OPERATORS_HEADER: Final = ("QUERY", "RESULT", "OPERATOR", "ROWS", "SIZE", "UPDATED", "COMMIT", "DROPPED")


def rows(found: Sequence[QueryInfo]) -> Iterator[tuple[Any, ...]]:
    """A row for each statement, and one for a query that has none yet."""
    for info in found:
        if not info.progress:
            yield (info.name, info.state, info.standby_state or "-", *("-",) * (len(HEADER) - 3))
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


def operator_rows(found: Sequence[QueryInfo]) -> Iterator[tuple[Any, ...]]:
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


def watch(
    look: Callable[[], tuple[Sequence[str], list[tuple[Any, ...]]]],
    stopped: Callable[[float], bool],
    interval_s: float,
) -> None:
    """Show in the terminal what `look` returns, a header and rows, until `stopped`, which waits for so many seconds."""
    with optional("the live table", "cli"):
        from rich.console import Console
        from rich.live import Live
    with Live(console=Console(file=sys.stdout), auto_refresh=False, screen=True) as live:
        live.update(_table(*look()), refresh=True)
        while not stopped(interval_s):
            live.update(_table(*look()), refresh=True)


def _table(header: Sequence[str], found: Sequence[tuple[Any, ...]]) -> RenderableType:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    right = [bool(found) and all(isinstance(row[i], int) for row in found) for i in range(len(header))]
    for name, numbers in zip(header, right, strict=True):
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for row in found:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else escape(terminal_text(str(cell))) for cell in row))
    return table
