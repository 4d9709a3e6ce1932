"""A check: a condition on the values of each event of a typed stream, and how a schema stores it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.errors import CorruptCatalog, InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamCheck", "checks_in", "checks_of", "merged", "with_checks"]

METADATA_KEY: Final = b"anabranch:checks"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """An event is refused if `condition` is false for it; as in SQL, null passes. The condition is in the language of
    `anabranch.core.check_condition`. `violations` names a stream that takes such events instead, if they are written in
    a way that can write to both streams at once (`anabranch.writing.diverting`)."""

    name: str
    condition: str
    violations: str | None = None


def checks_of(given: Mapping[str, str]) -> tuple[StreamCheck, ...]:
    """Checks from a mapping of names to conditions, in order of the names. Raises InvalidArgument."""
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"expected checks as a mapping of names to conditions, got {given!r:.100}")
    for name, condition in given.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise InvalidArgument(f"expected a check name of 1 to 64 letters, digits, _ and -, got {name!r:.100}")
        if not isinstance(condition, str) or not condition.strip():
            raise InvalidArgument(f"check '{name}' needs a condition such as \"celsius > -90\", not {condition!r:.100}")
        if len(condition) > limits.CHECK_CHARS_MAX:
            raise InvalidArgument(
                f"the condition of check '{name}' is longer than {limits.CHECK_CHARS_MAX:,} characters"
            )
    if len(given) > limits.CHECKS_MAX:
        raise InvalidArgument(f"expected at most {limits.CHECKS_MAX} checks on a stream, got {len(given)}")
    return tuple(StreamCheck(name, given[name].strip()) for name in sorted(given))


def merged(checks: tuple[StreamCheck, ...], added: StreamCheck) -> tuple[StreamCheck, ...]:
    """The checks with `added`, which replaces one of the same name; in order of the names. Raises InvalidArgument for too
    many."""
    by_name = {**{each.name: each for each in checks}, added.name: added}
    checks_of({name: each.condition for name, each in by_name.items()})
    return tuple(by_name[name] for name in sorted(by_name))


def with_checks(columns: pa.Schema, checks: tuple[StreamCheck, ...]) -> pa.Schema:
    """The columns with the checks in the schema's metadata: a JSON list of name, condition and, if there is
    one, the stream of violations."""
    if not checks:
        return columns
    parts = ((each.name, each.condition, each.violations) for each in checks)
    text = json.dumps([[part for part in each if part is not None] for each in parts])
    return columns.with_metadata({METADATA_KEY: text.encode()})


def checks_in(columns: pa.Schema) -> tuple[StreamCheck, ...]:
    """The inverse of `with_checks`. Raises CorruptCatalog."""
    text = (columns.metadata or {}).get(METADATA_KEY)
    if text is None:
        return ()
    try:
        found = {str(name): (condition, *violations) for name, condition, *violations in json.loads(text)}
        streams = {name: str(more[0]) for name, (_, *more) in found.items() if more}
        checks = checks_of({name: condition for name, (condition, *_) in found.items()})
        return tuple(StreamCheck(each.name, each.condition, streams.get(each.name)) for each in checks)
    except (ValueError, TypeError) as exc:  # InvalidArgument is a ValueError
        raise CorruptCatalog(f"the checks of a stream can't be read: {exc}") from exc
