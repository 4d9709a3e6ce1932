"""Full outer joins of streams, in which Spark 4.3 takes a null key as equal to another one.

For the other joins its optimizer removes rows with null keys before they are joined; for a full one it can't, and the state
of the join finds a null like any other key. So the condition gets what SQL means: that the keys are not null."""

from __future__ import annotations

from typing import Final

from sqlglot import TokenType

from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.estimated import Replacement
from anabranch.spark.pipelines.sql_tokens import closing, nesting, on_one_line, outside_parentheses, word_of

__all__ = ["keys_not_null"]

_JOINS: Final = frozenset({"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "ON", "USING"})
_AFTER: Final = frozenset({"WHERE", "GROUP", "HAVING", "ORDER", "SORT", "LIMIT", "WINDOW", "LATERAL", "EMIT"})
_SETS: Final = frozenset({"UNION", "EXCEPT", "MINUS", "INTERSECT"})
_ENDS: Final = _JOINS | _AFTER | _SETS


def keys_not_null(cursor: Cursor, begin: int) -> list[Replacement]:
    """What to insert into the conditions of the full joins of the query that begins at this token. Raises InvalidSql for a
    full join without a condition of its own."""
    found: list[Replacement] = []
    for index in range(begin, len(cursor.tokens)):
        if word_of(cursor.tokens[index]) == "FULL" and (join := _join(cursor, index)) is not None:
            condition = _condition(cursor, join)
            if condition is None:
                cursor.fail("a FULL JOIN of streams needs a condition: ON a.key = b.key AND …", at=index)
            sides = [side for conjunct in _conjuncts(cursor, condition, _end(cursor, condition)) for side in conjunct]
            if sides:
                tests = "".join(
                    f"({on_one_line(cursor.text, cursor.tokens[slice(*side)])}) IS NOT NULL AND "
                    for side in dict.fromkeys(sides)
                )
                found.append((condition, condition - 1, tests))
    return found


def _join(cursor: Cursor, full: int) -> int | None:
    """The index of JOIN after FULL; None if this is something else of that name."""
    at = full + 1 + (cursor.word_at(full + 1) == "OUTER")
    return at if cursor.word_at(at) == "JOIN" else None


def _condition(cursor: Cursor, join: int) -> int | None:
    """Where the condition of a join begins, after its ON; None if it has none."""
    joins = 1
    for index in outside_parentheses(cursor.tokens, join + 1):
        word = word_of(cursor.tokens[index])
        if word in _AFTER or word == "USING":
            break
        joins += (word == "JOIN") - (word == "ON")
        if not joins:
            return index + 1
    return None


def _end(cursor: Cursor, begin: int) -> int:
    """Where the condition that begins at this token ends."""
    depth = 0
    for index in range(begin, len(cursor.tokens)):
        token = cursor.tokens[index]
        depth += nesting(token)
        calls = word_of(token) in ("LEFT", "RIGHT") and cursor.kind_at(index + 1) is TokenType.L_PAREN
        if depth < 0 or (not depth and not calls and (token.token_type is TokenType.COMMA or word_of(token) in _ENDS)):
            return index
    return len(cursor.tokens)


def _conjuncts(cursor: Cursor, begin: int, end: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Both sides of each equality that has to hold for rows to be joined."""
    parts, first, depth, between = [], begin, 0, False
    for index in range(begin, end):
        token, word = cursor.tokens[index], word_of(cursor.tokens[index])
        depth += nesting(token) + (word == "CASE") - (word == "END")
        if depth:
            continue
        if word == "OR":
            return []
        if word == "BETWEEN":
            between = True
        elif word == "AND" and between:
            between = False
        elif word == "AND":
            parts.append((first, index))
            first = index + 1
    parts.append((first, end))
    return [side for part in parts for side in _equality(cursor, *part)]


def _equality(cursor: Cursor, begin: int, end: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    if begin < end and cursor.kind_at(begin) is TokenType.L_PAREN and closing(cursor.tokens, begin) == end - 1:
        return _conjuncts(cursor, begin + 1, end - 1)
    signs, depth = [], 0
    for index in range(begin, end):
        token, word = cursor.tokens[index], word_of(cursor.tokens[index])
        depth += nesting(token) + (word == "CASE") - (word == "END")
        if token.token_type is TokenType.EQ and not depth:
            signs.append(index)
    if len(signs) != 1 or word_of(cursor.tokens[begin]) == "NOT":
        return []
    return [((begin, signs[0]), (signs[0] + 1, end))]
