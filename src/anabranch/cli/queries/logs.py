"""Prints the log of a query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anabranch.cli.options import FollowOption, JsonOption, open_store
from anabranch.cli.output import iso_time, put_json, put_line
from anabranch.cli.queries.arguments import NameArgument


def logs(name: NameArgument, follow: FollowOption = False, as_json: JsonOption = False) -> None:
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
