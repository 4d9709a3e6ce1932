"""The functions that are translated. sqlglot knows many more; these are tested to give the same results in DuckDB and Spark.

`FUNCTIONS` lists those that sqlglot writes for both; `CALLS`, in `written_calls`, those with a writer of ours, by dialect."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from sqlglot import exp

from anabranch.query.dialects.dialect_clauses import ROWS_INSTEAD
from anabranch.query.dialects.quantiles import is_aggregate_over
from anabranch.query.dialects.written_calls import CALL_KINDS, CALLS, name_of

FUNCTIONS: Final[tuple[type[exp.Expr], ...]] = (
    *(exp.Abs, exp.And, exp.ApproxDistinct, exp.Avg, exp.Case, exp.Cast, exp.Ceil, exp.Coalesce, exp.Concat),
    *(exp.ConcatWs, exp.Count, exp.CountIf, exp.TimestampTrunc, exp.DenseRank, exp.Exp, exp.Extract, exp.Floor),
    *(exp.Greatest, exp.If, exp.Least, exp.Lag, exp.Lead, exp.Left, exp.Length, exp.Ln, exp.Lower, exp.Max),
    *(exp.Min, exp.Mod, exp.Nullif, exp.Or, exp.Pow, exp.Rank, exp.Replace, exp.Right, exp.Round, exp.RowNumber),
    *(exp.Sign, exp.Sqrt, exp.StartsWith, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Substring, exp.Sum),
    *(exp.Trim, exp.TryCast, exp.Upper, exp.VariancePop, exp.Variance),
)
_NAMES: Final[dict[type[exp.Expr], str]] = {
    exp.CountIf: "countif",
    exp.Mod: "mod",
    exp.TimestampTrunc: "date_trunc",
    exp.VariancePop: "var_pop",
}
"""What most systems call functions that the parser has other names for."""
_ALIKE_MAX: Final = 3
_PAGE: Final = "docs/reference/dialects.md"
_QUANTILE: Final = "write kll_sketch_agg_double(…) in a statement in the store's own SQL"
_INSTEAD: Final[dict[type[exp.Expr], str]] = {
    **dict.fromkeys((exp.Unnest, exp.Explode, exp.Posexplode), ROWS_INSTEAD),
    **dict.fromkeys((exp.ApproxQuantile, exp.Median, exp.PercentileCont, exp.PercentileDisc, exp.Quantile), _QUANTILE),
    exp.DateTrunc: "write the function that truncates a timestamp, such as TIMESTAMP_TRUNC in BigQuery or DATETRUNC in Azure",
}


_PARTS: Final[dict[type[exp.Expr], str]] = {
    exp.AtTimeZone: "AT TIME ZONE is not translated; leave it out: times are in UTC",
    exp.HistoricalData: "AT and BEFORE a time are not translated; leave them out: a query reads the stream as it is now",
    exp.Lateral: "LATERAL is not translated; write a JOIN",
    exp.MatchRecognize: "MATCH_RECOGNIZE is not translated; write a pipeline with a session window",
    exp.Pivot: "PIVOT is not translated; write count(CASE …) for each column",
    exp.TableSample: "TABLESAMPLE is not translated; write WHERE with a condition",
    exp.Version: "FOR SYSTEM_TIME AS OF is not translated; join the stream without it, as it is now",
}


def unsupported(tree: exp.Expr, text: str, dialect: str, *, pipeline: bool) -> tuple[exp.Expr, str] | None:
    """The first part that is not translated, with the message for it; None if all are. `text` is the text that was parsed."""
    for node in tree.walk():
        if isinstance(node, exp.Lateral) and not isinstance(node.this, exp.Query):
            return node, f"a function as a table is not translated; {ROWS_INSTEAD}"
        if (message := _PARTS.get(type(node))) is not None:
            return node, message
        if isinstance(node, exp.Table | exp.TableFromRows) and not isinstance(node.this, exp.Identifier):
            return node, "a function as a table is not translated; write the name of a stream"
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            return node, "a function behind a dot is not translated; write its name alone"
        if pipeline and isinstance(node, exp.Window) and not is_aggregate_over(node, dialect):
            return node, "OVER is not supported in a pipeline; write GROUP BY with a window"
        if pipeline and isinstance(node, exp.AggFunc) and isinstance(node.this, exp.Distinct):
            return (
                node,
                "an aggregate of DISTINCT values is not supported in a pipeline; use approx_distinct to count them",
            )
        if (
            isinstance(node, (exp.Func, *CALL_KINDS))
            and type(node) not in FUNCTIONS
            and name_of(node) not in CALLS[dialect]
        ):
            return node, f"the function {_written(node, text)} is not translated; {_instead(node, dialect)}"
    return None


def _written(node: exp.Expr, text: str) -> str:
    """The function's name as the statement has it; the parser may use another."""
    if isinstance(node, exp.Anonymous) or "start" not in node.meta:
        return _parsed_name(node)
    return text[node.meta["start"] : node.meta["end"] + 1].lower()


def _parsed_name(node: exp.Expr) -> str:
    return (name_of(node) or (node.sql_name() if isinstance(node, exp.Func) else node.key)).lower()


def _instead(node: exp.Expr, dialect: str) -> str:
    if (instead := _INSTEAD.get(type(node))) is not None:
        return instead
    known = {kind.sql_name() for kind in FUNCTIONS if issubclass(kind, exp.Func) and kind not in _NAMES}
    names = sorted({*_NAMES.values(), *map(str.lower, known | CALLS[dialect].keys())})
    alike = get_close_matches(_parsed_name(node), names, n=_ALIKE_MAX)
    # A list of all functions is so long that its reader never sees the place of the error, which comes last.
    meant = f"did you mean {' or '.join(alike)}? " if alike else ""
    return f"{meant}{_PAGE} lists those that are"
