"""Starts, stops and deletes queries."""

from __future__ import annotations

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import flag
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import print_note
from anabranch.cli.queries.info import NAME_ARGUMENT, print_change
from anabranch.cli.statement_options import DROP_RESULTS_OPTION


def start(name: str = NAME_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Start a query that was stopped or has failed. It continues where it stopped.

    Example:

      anabranch queries start means
    """
    with open_store() as opened:
        info = opened.queries.start(name)
    print_change(info, as_json)


def stop(
    name: str = NAME_ARGUMENT,
    now: bool = flag("--now", "Don't wait for the micro-batch in progress; the next run repeats it."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Stop a query after the micro-batch in progress. What it published stays.

    Examples:

      anabranch queries stop means
      anabranch queries stop means --now
    """
    with open_store() as opened:
        info = opened.queries.stop(name, now=now)
    print_change(info, as_json)


def delete(name: str = NAME_ARGUMENT, drop_results: bool = DROP_RESULTS_OPTION, yes: bool = YES_OPTION) -> None:
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
