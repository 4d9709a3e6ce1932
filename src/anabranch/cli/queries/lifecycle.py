"""Starts, stops and deletes queries."""

from __future__ import annotations

from typing import Annotated

from anabranch.cli.confirm import YesOption, confirm
from anabranch.cli.declare import flag
from anabranch.cli.options import JsonOption, open_store
from anabranch.cli.output import print_note
from anabranch.cli.queries.info import NameArgument, print_change
from anabranch.cli.statement_options import DropResultsOption


def start(name: NameArgument, as_json: JsonOption = False) -> None:
    """Start a query that was stopped or has failed. It continues where it stopped.

    Example:

      anabranch queries start means
    """
    with open_store() as opened:
        info = opened.queries.start(name)
    print_change(info, as_json)


def stop(
    name: NameArgument,
    now: Annotated[bool, flag("--now", "Don't wait for the micro-batch in progress; the next run repeats it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop a query after the micro-batch in progress. What it published stays.

    Examples:

      anabranch queries stop means
      anabranch queries stop means --now
    """
    with open_store() as opened:
        info = opened.queries.stop(name, now=now)
    print_change(info, as_json)


def delete(name: NameArgument, drop_results: DropResultsOption = False, yes: YesOption = False) -> None:
    """Delete a query with its versions, its checkpoints, its log and the streams of its late events. Its results stay,
    unless --drop-results is given: then all streams that it made are deleted, also those of earlier statements and those
    that a replay kept. If it ever ran, a host does this; until then it is listed.

    Examples:

      anabranch queries delete means
      anabranch queries delete means --drop-results
    """
    with open_store() as opened:
        made = opened.queries.get(name).made if drop_results else ()
        confirm(f"Delete query '{name}'{' with ' * bool(made)}{', '.join(made)}?", yes=yes)
        opened.queries.delete(name, drop_results=drop_results)
        left = any(info.name == name for info in opened.queries.list())
    print_note(f"query '{name}' {'is being deleted by its host' if left else 'is deleted'}")
