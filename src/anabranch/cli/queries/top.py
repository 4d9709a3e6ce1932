"""Shows live figures of the queries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JsonOption, open_store
from anabranch.cli.output import print_columns, print_json
from anabranch.cli.queries.info import progress_to_json
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.deployments.info import QueryInfo


def top(
    names: Annotated[list[str] | None, argument("[NAME]…", "These queries; default: all.")] = None,
    operators: Annotated[
        bool, flag("--operators", "A row for each stateful operator, instead of for each statement.")
    ] = False,
    segments: Annotated[
        bool, flag("--segments", "A row for each segment of the streams that a statement reads.")
    ] = False,
    once: Annotated[bool, flag("--once", "Print once, and end: the default without a terminal.")] = False,
    interval: Annotated[str, option("--interval", "DURATION", "Time between two looks.")] = "1s",
    as_json: JsonOption = False,
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
    from anabranch.cli.queries import top_table
    from anabranch.model.amounts import to_duration

    interval_s = to_duration(interval) / 1e6
    if operators and segments:
        raise InvalidArgument("give --operators or --segments, not both")
    header, rows_of = top_table.TABLES["operators" if operators else "segments" if segments else "statements"]
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
                top_table.watch(lambda: (header, list(rows_of(look()))), interrupted.wait, interval_s)
