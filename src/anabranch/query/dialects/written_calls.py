"""Writes the calls of functions that the modules `times`, `texts`, `json_texts` and `quantiles` know, by dialect."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import Conversion, NotTranslated, WrittenCall, by_dialect
from anabranch.query.dialects.json_texts import JSON_TEXTS
from anabranch.query.dialects.kinds import KIND, Kind, overwrite
from anabranch.query.dialects.quantiles import QUANTILES, arguments_around
from anabranch.query.dialects.texts import TEXTS
from anabranch.query.dialects.times import TIMES

CALLS: Final = by_dialect((*TIMES, *JSON_TEXTS, *TEXTS, *QUANTILES))
"""For each dialect, the writer of each function, by its name in upper case."""

_OF_SYNTAX: Final[dict[type[exp.Expr], str]] = {
    exp.StrPosition: "POSITION",
    exp.JSONValue: "JSON_VALUE",
    exp.RegexpLike: "~",
}
CALL_KINDS: Final[tuple[type[exp.Expr], ...]] = (exp.Anonymous, exp.AnonymousAggFunc, *_OF_SYNTAX)
NOT_NEGATIVE: Final = "anabranch_not_negative"
"""The key in `meta` that marks an integer known to be at least 0."""
POSITION_FUNCTIONS: Final = frozenset(("POSITION", "STRPOS", "INSTR", "LOCATE", "CHARINDEX"))
"""Functions that return the position of a text in another, from 1 on; 0 if it is not found."""
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(POSITION_FUNCTIONS, "int64"),
    **dict.fromkeys(("TIMESTAMPDIFF", "DATEDIFF", "TIMEDIFF", "TIMESTAMP_DIFF", "DATE_DIFF"), "int64"),
    **dict.fromkeys(
        ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFMONTH", "DAY_OF_MONTH", "HOUR", "MINUTE", "SECOND"), "int64"
    ),
    **dict.fromkeys(("UNIX_TIMESTAMP", "UNIX_SECONDS", "UNIX_MILLIS", "UNIX_MICROS"), "int64"),
    **dict.fromkeys(("JSON_VALUE", "JSON_EXTRACT_SCALAR", "EXTRACTJSONFIELD", "SPLIT_PART", "SPLIT_INDEX"), "text"),
    **dict.fromkeys(("REGEXP_EXTRACT", "REGEXP_REPLACE"), "text"),
}
"""The kind of the result, for functions where it is known."""


def write_call(node: exp.Expr, to: Conversion) -> None:
    """Replace a function of the table by SQL of the target. Raises NotTranslated for a form that is not translated."""
    name = name_of(node)
    writer = CALLS[to.dialect].get(name)
    if writer is None:
        return
    around, arguments = node, _arguments(node)
    if isinstance(node, exp.AnonymousAggFunc) and (wider := arguments_around(node, to.dialect)) is not None:
        around, arguments = wider
    written = overwrite(around, writer(WrittenCall(to.dialect, to.pipeline, name, arguments)))
    written.meta.update({KIND: _KINDS.get(name), NOT_NEGATIVE: name in POSITION_FUNCTIONS})


def name_of(node: exp.Expr) -> str:
    """The name, in upper case, to look a call up in `CALLS`; empty for any other expression."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return node.name.upper()
    return _OF_SYNTAX.get(type(node), "")


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    match node:
        case exp.StrPosition():
            if node.args.get("position") is not None or node.args.get("occurrence") is not None:
                raise NotTranslated("POSITION with a start index is not translated; leave it out")
            return [node.args["substr"], node.this]
        case exp.JSONValue():
            if node.args.get("returning") or node.args.get("on_condition"):
                raise NotTranslated(
                    "JSON_VALUE with RETURNING, ON EMPTY or ON ERROR is not translated; write CAST(JSON_VALUE(x, '$.a') AS …)"
                )
            return [node.this, node.args["path"]]
        case exp.RegexpLike():
            return [node.this, node.expression]
    return node.expressions
