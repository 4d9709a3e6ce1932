"""Writes docs/reference/state.md from what `anabranch.catalog.state` declares: `python docs/state_page.py`.

A test holds the page to this, and parses its examples.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, get_args, get_type_hints

from anabranch.catalog.state.kind import Entry, StateKind
from anabranch.catalog.state.kinds import KINDS

_WIDTH = 125
PAGE = Path(__file__).parent / "reference" / "state.md"
_HEAD = """# State

The catalog's table `states` holds what features keep: one row for each value, as JSON. Each kind of value is declared in
`anabranch.catalog.state`, from which this page is made (`python docs/state_page.py`). A test parses the examples below
with the code that reads a catalog.

| Column | Content |
|---|---|
| `kind` | one of the kinds below |
| `key` | text; unique within the kind |
| `lookup` | what a row is found by other than by its key, or null; there is an index on `kind`, `lookup` |
| `value` | a JSON object, without spaces and with sorted members |
| `digest` | [the digest of the row](../explanation/formats.md#the-digest-of-a-row) |

Reading is strict. A missing or unknown member, a value of another type, a key that is not written as shown, or a lookup
that does not follow from the value raises `CorruptCatalog`, which names the kind and the key. `anabranch check` reads all
rows of all kinds this way, and a restore refuses a backup with any other row.

In all kinds, times are µs since 1970-01-01 UTC, sizes are logical bytes, a stream's id is 16 hex digits, a segment's id is
`epoch · 2³² + number`, a key range is its two edges in hex, and bytes are base64. An array that stands for a record has
the record's fields in the order given.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *(_section(KINDS[name]) for name in sorted(KINDS))]
    return "\n".join(parts)


def _section(kind: StateKind[Any, Any]) -> str:
    entry = kind.entry(*kind.example)
    items = [f"Key: {kind.by}."]
    if kind.found_by is not None:
        items.append(f"Lookup: {kind.found_by}.")
    items += _types(type(kind.example.value))
    lines = [f"## {kind.name}", "", _wrapped(kind.about), ""]
    lines += [_wrapped(f"- {item}", indent="  ") for item in items]
    lines += ["", "```json", _example(entry), "```", ""]
    return "\n".join(lines)


def _example(entry: Entry) -> str:
    """A row, each member of its value on a line."""
    members = ",\n".join(f'    "{name}": {json.dumps(each)}' for name, each in sorted(json.loads(entry.value).items()))
    value = f"{{\n{members}\n  }}" if members else "{}"
    return f'{{\n  "key": {json.dumps(entry.key)},\n  "lookup": {json.dumps(entry.lookup)},\n  "value": {value}\n}}'


def _types(hint: Any, seen: set[Any] | None = None) -> Iterator[str]:
    """A line for each record that a value is made of."""
    seen = set() if seen is None else seen
    for arg in get_args(hint):
        yield from _types(arg, seen)
    if not isinstance(hint, type) or hint in seen:
        return
    seen.add(hint)
    if is_dataclass(hint):
        names = [field.name for field in fields(hint)]
    elif issubclass(hint, tuple) and hasattr(hint, "_fields"):
        names = list(hint._fields)
    else:
        return
    if hint.__name__ not in _PLAIN:
        members = ", ".join(f"`{name}`" for name in names)
        yield f"`{hint.__name__}` ({members}): {_prose(inspect.getdoc(hint) or '')}"
        hints = get_type_hints(hint)
        for name in names:
            yield from _types(hints[name], seen)


# Written as one value: see the head of the page.
_PLAIN = {"SegmentId", "StreamName", "StreamCut", "KeyRange"}


def _prose(text: str) -> str:
    return " ".join(text.split())


def _wrapped(line: str, indent: str = "") -> str:
    """The line as several that are not too long, as in the other pages."""
    return fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
