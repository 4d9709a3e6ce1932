"""LIKE: which patterns have the same result here, and what a backslash in one becomes."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import sql_of

_ESCAPES: Final = frozenset({"bigquery", "risingwave", "materialize"})
"""Where a backslash in a pattern escapes what follows, as in Spark. It is a plain character in the others, as in DuckDB."""
_UNDOCUMENTED: Final = "ksqldb"


def like_refusal(node: exp.Like | exp.ILike, dialect: str) -> str | None:
    """Why a pattern may match other texts there; None if it does not."""
    pattern = node.args["expression"]
    if dialect == "azure" and (not pattern.is_string or "[" in pattern.name):
        return "LIKE with [ ] or without a constant pattern is not translated; use % and _"
    if dialect == _UNDOCUMENTED and pattern.is_string and "\\" in pattern.name and not _has_escape(node):
        return "LIKE with a backslash is not translated; name what escapes: LIKE '50!%' ESCAPE '!'"
    return None


def write_like(node: exp.Like | exp.ILike, dialect: str, *, pipeline: bool) -> None:
    """Write a backslash so that it escapes, or does not, as in the dialect."""
    pattern = node.args["expression"]
    if _has_escape(node) or pipeline == (dialect in _ESCAPES) or (pattern.is_string and "\\" not in pattern.name):
        return
    if not pipeline:
        node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))
    elif pattern.is_string:
        node.set("expression", exp.Literal.string(pattern.name.replace("\\", "\\\\")))
    else:
        text = sql_of(pattern, pipeline=True)
        node.set("expression", exp.Var(this=rf"replace({text}, '\\', '\\\\')"))


def _has_escape(node: exp.Like | exp.ILike) -> bool:
    return isinstance(node.parent, exp.Escape)
