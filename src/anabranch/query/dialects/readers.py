"""The sqlglot dialect that parses each dialect. Flink's and ksqlDB's, which sqlglot does not have, derive from Spark's.

A function of the table `CALLS` is read as it is written, and not as sqlglot understands it."""

from __future__ import annotations

import types
from functools import partial
from typing import Any, ClassVar, Final

from anabranch.errors.optional import optional

with optional("a translation of SQL", "query"):
    from sqlglot import Dialect, TokenType, exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.parser import Parser
    from sqlglot.parsers.spark import SparkParser

    from anabranch.query.dialects.calls import by_dialect
    from anabranch.query.dialects.quantiles import QUANTILES
    from anabranch.query.dialects.written_calls import CALLS


class FlinkTokenizer(Spark.Tokenizer):
    """In a string literal a quote is doubled, and a backslash does not escape."""

    QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    # What follows EXECUTE is words, as in EXECUTE STATEMENT SET, and not one text up to the semicolon.
    COMMANDS: ClassVar[set[TokenType]] = Spark.Tokenizer.COMMANDS - {TokenType.EXECUTE}


class KsqldbTokenizer(FlinkTokenizer):
    """Names may have double quotes."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']


class KsqldbParser(SparkParser):
    """Keeps the length of a text type, as in VARCHAR(3), which Spark's parser drops from a cast."""

    def _parse_types(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        # Not super(): the parsers between this class and Parser drop the length.
        return Parser._parse_types(self, *arguments, **options)


class FlinkParser(KsqldbParser):
    """A cast that fails is an error."""

    STRICT_CAST = True


class FlinkReader(Spark):
    """Flink's SQL."""

    SAFE_DIVISION = False
    TYPED_DIVISION = True
    Tokenizer = FlinkTokenizer
    Parser = FlinkParser


class KsqldbReader(Spark):
    """ksqlDB's SQL. A cast that fails is null."""

    SAFE_DIVISION = False
    TYPED_DIVISION = True
    Tokenizer = KsqldbTokenizer
    Parser = KsqldbParser


_PARSED_AS_SYNTAX: Final = frozenset({"POSITION", "JSON_VALUE"})
"""Functions with words between their arguments: `POSITION(a IN b)`, `JSON_VALUE(a, b RETURNING c)`."""


def _as_written(name: str, arguments: list[exp.Expr], *, aggregates: bool) -> exp.Expr:
    kind = exp.AnonymousAggFunc if aggregates else exp.Anonymous
    return kind(this=name, expressions=arguments)


def _reader(dialect: str, base: type[Dialect]) -> type[Dialect]:
    """The sqlglot dialect, changed so that functions in `CALLS` are not parsed into sqlglot's own expressions."""
    parser: Any = base.parser_class
    names = CALLS[dialect].keys() - _PARSED_AS_SYNTAX
    aggregates = by_dialect(QUANTILES).get(dialect, {})

    class Parser(parser):  # type: ignore[misc]
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **parser.FUNCTIONS,
            **{name: partial(_as_written, name, aggregates=name in aggregates) for name in names},
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **{name: read for name, read in parser.FUNCTION_PARSERS.items() if name not in names},
            "JSON_VALUE": lambda self: self._parse_json_value(json_path=False),
        }

    made: type[Dialect] = types.new_class(
        f"Anabranch_{dialect}",
        (base,),
        # Indexes of elements are kept as they are written: the parser would change constant ones only.
        exec_body=lambda body: body.update(Parser=Parser, INDEX_OFFSET=0),
    )
    return made


_BASES: Final[dict[str, str | type[Dialect]]] = {
    "flink": FlinkReader,
    "ksqldb": KsqldbReader,
    "azure": "tsql",
    "risingwave": "risingwave",
    "materialize": "materialize",
    "snowflake": "snowflake",
    "bigquery": "bigquery",
    "trino": "trino",
}
READ_AS: Final[dict[str, type[Dialect]]] = {
    dialect: _reader(dialect, type(Dialect.get_or_raise(base))) for dialect, base in _BASES.items()
}
