"""Finds the streams and the functions that a query names."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from anabranch.errors import InvalidName
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.store import Store

_NAME: Final = r'(?:"(?:[^"]|"")+"|[A-Za-z_]\w*)'
_CHAINS = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})*")
_SHOW_TABLES = re.compile(r"\s*SHOW\s+(ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE)
_PARTS = re.compile(_NAME)
_CALLED = re.compile(r'\b(\w+)"?\s*\(')


def named_streams(store: Store, sql: str) -> dict[StreamName, StreamId]:
    """The streams named in the text, as they are named there. DuckDB's own parser returns the tables of SELECT statements
    only, so every name in the text is looked up; one that is not a table costs a lookup."""
    found: dict[StreamName, StreamId] = {}
    for text in sorted({text for chain in _CHAINS.findall(sql) for text in _candidates(chain)}):
        try:
            name = StreamName.parse(text)
        except InvalidName:
            continue
        store.notifications.freshen(name)
        if store.streams.exists(name):
            found[name] = store.streams.get(name).id
    return found


def _candidates(chain: str) -> list[str]:
    """`"scope/name"`, `scope.name` and `database.scope.name`, in a chain of names that may go on with a column."""
    parts = [each[1:-1].replace('""', '"') if each[0] == '"' else each for each in _PARTS.findall(chain)]
    pairs = [f"{first}/{second}" for first, second in pairwise(parts)]
    return [*(part for part in parts if "/" in part), *pairs]


def lists_tables(sql: str) -> bool:
    """Whether this is SHOW TABLES, which lists the streams."""
    return _SHOW_TABLES.fullmatch(sql) is not None


def called_names(sql: str) -> frozenset[str]:
    """The names before an opening parenthesis, in lower case; also where it is not a call, such as in comments."""
    return frozenset(name.lower() for name in _CALLED.findall(sql))
