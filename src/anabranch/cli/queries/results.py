"""Prints what a query has made: its results, its state and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anabranch import limits
from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import FOLLOW_OPTION, JSON_OPTION, OutputOptions, open_store
from anabranch.cli.output import iso_time, print_json, print_note, put_json, put_line
from anabranch.cli.queries.info import NAME_ARGUMENT, RESULT_ARGUMENT
from anabranch.cli.read import META_OPTION, ReadingOptions
from anabranch.cli.render.json_lines import json_rows
from anabranch.errors import EventNotFound, InvalidArgument


def results(
    name: str = NAME_ARGUMENT,
    result: str | None = RESULT_ARGUMENT,
    *,
    options: ReadingOptions,
    meta: bool = META_OPTION,
    output: OutputOptions,
) -> None:
    """Print the results of a query, as `read` prints a stream. With --follow it continues with new results, and
    waits for the results of a query that has just been deployed.

    Examples:

      anabranch queries results means
      anabranch queries results means --from -1h --follow
      anabranch queries results means iot/means --format csv --output means.csv
    """
    kind = output.kind
    options.check_format(kind)
    with open_store() as opened, opened.queries.results(name, result, **options.of_reader(opened)) as reader:
        options.print_events(reader, kind, output.file, meta=meta)


def state(
    name: str = NAME_ARGUMENT,
    key: str | None = argument("KEY", "The routing key of the results, such as a device.", default=None),
    result: str | None = RESULT_ARGUMENT,
    committed: bool = flag("--committed", "Spark's state, such as open windows."),
    batch: int | None = option(
        "--batch", "N", "With --committed: the state after this micro-batch. Default: the last one.", min=0
    ),
    limit: int = option(
        "--limit",
        "N",
        "With --committed: the maximum number of rows.",
        min=1,
        max=limits.DEPLOYMENT_STATE_ROWS_MAX,
        default=100,
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Print the last result with a key, of all that were published by now, as one line of JSON.

    With --committed, print Spark's state of the query instead, such as windows that are still open: a line for each
    row, as of the last micro-batch; with KEY only rows whose key has a part with this text. A host answers.

    Examples:

      anabranch queries state means sensor-7
      anabranch queries state means sensor-7 --committed
    """
    if committed:
        _print_committed(name, key, result, batch, limit, as_json=as_json)
        return
    if key is None or batch is not None:
        raise InvalidArgument(
            "pass the KEY of a result, or --committed for Spark's state; --batch requires --committed"
        )
    with open_store() as opened:
        found = opened.queries.state(name, key, result)
        if found is None:
            raise EventNotFound(f"query '{name}' has no result with the key '{key}'")
        put_json(json_rows(found.row)[0])


def _print_committed(
    name: str, key: str | None, result: str | None, batch: int | None, limit: int, *, as_json: bool
) -> None:
    from dataclasses import asdict

    with open_store() as opened:
        found = opened.queries.committed_state(name, key, result, batch=batch, rows_max=limit)
    if as_json:
        print_json(asdict(found))
        return
    for row in found.rows:
        put_json(json.dumps(row.to_json(), ensure_ascii=False))
    print_note(f"the state after micro-batch {found.batch}{'; there is more: --limit' if found.more else ''}")


def logs(name: str = NAME_ARGUMENT, follow: bool = FOLLOW_OPTION, as_json: bool = JSON_OPTION) -> None:
    """Print the log of a query: its starts, ends and failures.

    Example:

      anabranch queries logs means -f
    """
    from anabranch.deployments.record import log_stream
    from anabranch.errors import StreamNotFound

    with open_store() as opened:
        opened.queries.get(name)
        try:
            reader = opened.reader(log_stream(name), follow=follow)
        except StreamNotFound:  # no host has run it yet
            return
        with reader:
            for event in reader:
                line = event.body
                at = iso_time(round(line["at"].timestamp() * 1_000_000))
                if as_json:
                    put_json(_line_json({**line, "at": at}), flush=True)
                else:
                    put_line(f"{at}  {line['level']:<7}  {line['message']}", flush=True)


def _line_json(line: Mapping[str, Any]) -> str:
    return json.dumps(dict(line), ensure_ascii=False)
