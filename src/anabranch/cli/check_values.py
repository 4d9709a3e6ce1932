"""`anabranch stream check`: the conditions that the events of a stream must meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.cli.declare import option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_catalog
from anabranch.cli.output import print_columns, print_json, print_note
from anabranch.errors import InvalidArgument

CHECK_OPTION: Final = option("--check", "TEXT", "Refuse events for which this is false: 'name: condition'; repeatable.")


def check(
    stream: str = STREAM_ARGUMENT,
    add: list[str] | None = option("--add", "TEXT", "Add or replace one: 'name: condition'."),
    violations: str | None = option(
        "--violations",
        "STREAM",
        "With --add: events that break it go to this stream, which is created, instead of being refused.",
    ),
    remove: list[str] | None = option("--remove", "NAME", "Remove one."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Set conditions that the events of a stream must meet, or without options show them.

    An event for which a condition is false is refused, however it is written; null passes, as in SQL. Earlier events are not
    looked at.

    With --violations, what `anabranch write`, transactions and Spark write is divided in one transaction: events that
    break the check go to that stream, with the check's name in the column `_check`. Other writers' events are refused.

    Examples:

      anabranch stream check iot/sensors --add "range: celsius BETWEEN -90 AND 60" --add "unit: unit IN ('C', 'F')"
      anabranch stream check iot/sensors --add "range: celsius > -90" --violations iot/rejected
      anabranch stream check iot/sensors --remove range
    """
    added = parse_checks(add)
    if violations is not None and not added:
        raise InvalidArgument("--violations requires --add: it names the stream for events that break the added check")
    with open_catalog() as names:
        for name in remove or ():
            names.streams.remove_check(stream, name)
        for name, condition in added.items():
            names.streams.add_check(stream, name, condition, violations=violations)
        info = names.streams.get(stream)
    if as_json:
        print_json({"name": str(info.name), "checks": {each.name: each.condition for each in info.schema.checks}})
    elif not info.schema.checks:
        print_note(f"'{info.name}' has no checks")
    else:
        diverts = info.schema.diverts
        print_columns(
            ("CHECK", "CONDITION", *(["VIOLATIONS"] if diverts else [])),
            [
                (each.name, each.condition, *([each.violations or "refused"] if diverts else []))
                for each in info.schema.checks
            ],
        )


def parse_checks(texts: Sequence[str] | None) -> dict[str, str]:
    """Checks from texts such as `range: celsius > -90`. Raises InvalidArgument."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, colon, condition = text.partition(":")
        if not colon:
            raise InvalidArgument(f"expected a check as 'name: condition', got {text!r:.200}")
        if name.strip() in found:
            raise InvalidArgument(f"check '{name.strip()}' is given twice")
        found[name.strip()] = condition
    return found
