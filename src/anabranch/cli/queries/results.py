"""Prints the results of a query: all of a range, or the last one of a key."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, OutputOption, StoreOption, open_store
from anabranch.cli.output import put_json
from anabranch.cli.queries.arguments import NameArgument, ResultArgument
from anabranch.cli.ranges import ByOption
from anabranch.cli.read import (
    ColumnsOption,
    EndOption,
    FollowOption,
    FormatOption,
    LimitOption,
    MetaOption,
    StartOption,
    output_format,
    print_events,
    reader_options,
)
from anabranch.cli.render import json_rows
from anabranch.errors import EventNotFound


def results(
    name: NameArgument,
    result: ResultArgument = None,
    start: StartOption = "head",
    end: EndOption = None,
    by: ByOption = "append",
    follow: FollowOption = False,
    limit: LimitOption = None,
    columns: ColumnsOption = None,
    meta: MetaOption = False,
    form: FormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Print the results of a query, as `read` prints a stream. With --follow it goes on from the past into the future, and
    waits for the results of a query that has just been deployed.

    Examples:

      anabranch queries results means
      anabranch queries results means --from -1h --follow
      anabranch queries results means iot/means --format csv --output means.csv
    """
    kind = output_format(form, as_json=as_json, output=output, follow=follow, limit=limit)
    with open_store(store) as opened:
        options = reader_options(opened, start, end, by, follow=follow, limit=limit, columns=columns)
        with opened.queries.results(name, result, **options) as reader:
            print_events(reader, kind, output, limit=limit, meta=meta, follow=follow)


def state(
    name: NameArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The routing key of the results, such as a device.")],
    result: ResultArgument = None,
    store: StoreOption = None,
) -> None:
    """Print the last result with a key, of all that were published by now, as one line of JSON.

    Examples:

      anabranch queries state means sensor-7
    """
    with open_store(store) as opened:
        found = opened.queries.state(name, key, result)
        if found is None:
            raise EventNotFound(f"query '{name}' has no result with the key '{key}'")
        put_json(json_rows(found.row)[0])
