"""LIKE: which patterns have the same result here, and what a backslash in one becomes."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import Conversion, NotTranslated
from anabranch.query.dialects.kinds import overwrite

_ESCAPES: Final = frozenset({"bigquery", "risingwave", "materialize"})
"""Where a backslash in a pattern escapes what follows, as in Spark. It is a plain character in the others, as in DuckDB."""
_UNDOCUMENTED: Final = "ksqldb"


def write_like(node: exp.Like | exp.ILike, to: Conversion) -> None:
    """Write a backslash so that it escapes, or does not, as in the dialect. Raises NotTranslated for patterns that may match
    other texts there."""
    pattern, has_escape = node.args["expression"], isinstance(node.parent, exp.Escape)
    if to.dialect == "azure" and (not pattern.is_string or "[" in pattern.name):
        raise NotTranslated("LIKE with [ ] or without a constant pattern is not translated; use % and _")
    if has_escape or (pattern.is_string and "\\" not in pattern.name):
        return
    if to.dialect == _UNDOCUMENTED and pattern.is_string:
        raise NotTranslated("LIKE with a backslash is not translated; name what escapes: LIKE '50!%' ESCAPE '!'")
    if to.pipeline == (to.dialect in _ESCAPES):
        return
    if not to.pipeline:
        node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))
    elif pattern.is_string:
        node.set("expression", exp.Literal.string(pattern.name.replace("\\", "\\\\")))
    else:
        overwrite(pattern, rf"replace({to.written(pattern)}, '\\', '\\\\')")
