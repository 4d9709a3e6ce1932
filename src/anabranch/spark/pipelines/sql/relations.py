"""The streams and tables that a query reads, and the views in their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sqlglot import TokenType

from anabranch.model.names import StreamName
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.sql_tokens import word_of
from anabranch.spark.pipelines.statement import VERSIONS_VIEW
from anabranch.spark.pipelines.windows.clauses import Relation

__all__ = ["Relations", "relations"]

# Spark itself reads `format.`path``, so these first parts are never scopes.
_FILE_FORMATS: Final = frozenset({"avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"})


@dataclass(frozen=True, slots=True)
class Relations:
    """The streams and tables of a query in the order of its text, and the names of both by the views in their places."""

    found: tuple[Relation, ...]
    sources: Mapping[str, StreamName]
    tables: Mapping[str, StreamName]


def relations(cursor: Cursor, number: int) -> Relations:
    """Step over the query, which belongs to the file's statement with this number, and find what it reads. Raises InvalidSql."""
    found: list[Relation] = []
    sources: dict[str, StreamName] = {}
    tables: dict[str, StreamName] = {}
    versions: dict[str, StreamName] = {}
    queries = [False]  # per open parenthesis: is it a (sub)query, whose FROM names relations?
    opened: list[int] = []
    previous = "("
    while (token := cursor.peek()) is not None:
        word = word_of(token)
        if word == "(":
            queries.append(False)
            opened.append(cursor.at)
        elif word == ")":
            if not opened:
                cursor.fail("unmatched ')'")
            queries.pop()
            opened.pop()
        elif word == "SELECT" or (word == "FROM" and previous == "("):
            queries[-1] = True
        # `extract(year FROM at)` and `a IS DISTINCT FROM b` name no relation.
        is_relation = word == "JOIN" or (word == "FROM" and queries[-1] and previous != "DISTINCT")
        previous = word
        first = cursor.at = cursor.at + 1
        if _is_stream_keyword(cursor) and (is_relation or (word == "," and cursor.two_parts_at(first + 1))):
            cursor.at += 1
            name = cursor.stream_name(f"{'FROM' if word == ',' else word} STREAM")
            view = _view_of(name, sources, f"anabranch_{number}_stream_")
        elif is_relation and cursor.word() == "VERSIONS" and cursor.two_parts_at(first + 1) is not None:
            cursor.at += 1
            name = cursor.stream_name("VERSIONS")
            view = _view_of(name, versions, f"anabranch_{number}_{VERSIONS_VIEW}_")
        elif is_relation and (parts := cursor.two_parts_at(first)) and parts[0].lower() not in _FILE_FORMATS:
            name = cursor.stream_name(word)
            view = _view_of(name, tables, f"anabranch_{number}_table_")
        else:
            continue
        found.append(Relation(first, cursor.at - 1, view + _alias_for(cursor, name), name.name, view in sources))
        previous = ""
    if opened:
        cursor.fail("this ( is never closed", at=opened[-1])
    return Relations(tuple(found), MappingProxyType(sources), MappingProxyType({**tables, **versions}))


def _is_stream_keyword(cursor: Cursor) -> bool:
    token = cursor.peek()
    return token is not None and token.token_type is TokenType.VAR and token.text.upper() == "STREAM"


def _alias_for(cursor: Cursor, name: StreamName) -> str:
    """` AS name` unless the query gives an alias, so that `name.column` still works over a view."""
    token = cursor.peek()
    if token is not None and token.token_type in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER):
        return ""
    return f" AS `{name.name}`"


def _view_of(name: StreamName, views: dict[str, StreamName], prefix: str) -> str:
    """The view of a stream, added to `views` if new. Views are per statement, because watermarks are."""
    for view, known in views.items():
        if known == name:
            return view
    view = f"{prefix}{len(views) + 1}"
    views[view] = name
    return view
