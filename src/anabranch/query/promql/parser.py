"""Parses PromQL with the package promql-parser into the nodes of `syntax`. Refuses what the engine does not support."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from anabranch import limits
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidSql
from anabranch.errors.optional import optional
from anabranch.query.promql import syntax as ast

_TOKENS: Final = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`|#[^\n]*|[\w:.]+|[^\s\w]', re.DOTALL)
_MATCH_OPERATORS: Final[dict[str, ast.MatchOperator]] = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_promql(text: str) -> ast.PromNode:
    """The query as a tree. Raises InvalidSql for one that can't be parsed or is not supported, TooLarge."""
    with optional("PromQL", "promql"):
        import promql_parser
    check_sql_text(text, what="the query", bytes_max=limits.SQL_BYTES_MAX)
    # The parser recurses on the machine's stack, which thousands of brackets would overflow.
    if sum(1 for _ in _TOKENS.finditer(text)) > limits.PROMQL_TOKENS_MAX:
        raise InvalidSql(f"the query has more than {limits.PROMQL_TOKENS_MAX:,} words and signs; split it")
    try:
        parsed = promql_parser.parse(text)
    except ValueError as exc:
        raise InvalidSql(str(exc)) from exc
    return _node(parsed, 0)


def parse_selector(text: str) -> ast.Selector:
    """A selector without a range, as in `match[]`. Raises InvalidSql."""
    found = parse_promql(text)
    if not isinstance(found, ast.Selector) or found.range is not None:
        raise InvalidSql(f"expected a selector of series such as cpu{{host=\"a\"}}, got '{text:.80}'")
    return found


def _node(found: Any, depth: int) -> ast.PromNode:
    if depth > limits.PROMQL_DEPTH_MAX:
        raise InvalidSql(f"the query is nested deeper than {limits.PROMQL_DEPTH_MAX}")
    match type(found).__name__:
        case "NumberLiteral":
            return ast.NumberNode(found.val)
        case "StringLiteral":
            return ast.TextNode(found.val)
        case "ParenExpr":
            return _node(found.expr, depth + 1)
        case "UnaryExpr":
            return ast.Negation(_node(found.expr, depth + 1))
        case "VectorSelector":
            return _selector(found, None)
        case "MatrixSelector":
            return _selector(found.vector_selector, _ms(found.range))
        case "SubqueryExpr":
            step = None if found.step is None else _ms(found.step)
            return ast.Subquery(_node(found.expr, depth + 1), _ms(found.range), step or None, _shift(found))
        case "Call":
            return ast.PromCall(found.func.name, tuple(_node(each, depth + 1) for each in found.args))
        case "AggregateExpr":
            return _aggregation(found, depth)
        case "BinaryExpr":
            return _binary(found, depth)
    raise InvalidSql(f"{type(found).__name__} is not supported")


def _aggregation(found: Any, depth: int) -> ast.PromNode:
    modifier = found.modifier
    parameter = None if found.param is None else _node(found.param, depth + 1)
    labels = () if modifier is None else tuple(modifier.labels)
    without = modifier is not None and str(modifier.type).endswith("Without")
    return ast.Aggregation(str(found.op), _node(found.expr, depth + 1), parameter, labels, without)


def _binary(found: Any, depth: int) -> ast.PromNode:
    modifier, matching, numbers = found.modifier, ast.Matching(), False
    if modifier is not None:
        if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
            raise InvalidSql("fill() is not supported")
        numbers = modifier.return_bool
        cardinality = str(modifier.card).rpartition(".")[2]
        labels = modifier.matching
        matching = ast.Matching(
            on=labels is not None and str(labels.type).endswith("Include"),
            labels=() if labels is None else tuple(labels.labels),
            many="left" if cardinality == "ManyToOne" else "right" if cardinality == "OneToMany" else None,
            include=tuple(modifier.group_labels or ()),
        )
    left, right = _node(found.lhs, depth + 1), _node(found.rhs, depth + 1)
    return ast.BinaryNode(str(found.op), left, right, matching, numbers)


def _selector(found: Any, range_: int | None) -> ast.Selector:
    if found.matchers.or_matchers:
        raise InvalidSql("'or' between matchers is not supported; write two selectors with or between them")
    matchers = [_matcher(each) for each in found.matchers.matchers]
    if found.name is not None:
        matchers.insert(0, ast.LabelMatcher("=", "__name__", found.name))
    return ast.Selector(tuple(matchers), _shift(found), range_)


def _matcher(found: Any) -> ast.LabelMatcher:
    return ast.LabelMatcher(_MATCH_OPERATORS[str(found.op).rpartition(".")[2]], found.name, found.value)


def _shift(found: Any) -> ast.Shift:
    offset = 0 if found.offset is None else _ms(found.offset)
    if found.at is None:
        return ast.Shift(offset)
    match str(found.at.type).rpartition(".")[2]:
        case "Start":
            return ast.Shift(offset, "start")
        case "End":
            return ast.Shift(offset, "end")
    return ast.Shift(offset, _ms(found.at.at - _EPOCH))


def _ms(found: timedelta) -> int:
    return round(found / _MILLISECOND)
