"""Which dialect of sqlglot reads each dialect. Flink's and ksqlDB's, which sqlglot does not know, are made of Spark's."""

from __future__ import annotations

from typing import ClassVar, Final

from anabranch.errors.optional import optional

with optional("a translation of SQL", "spark"):
    from sqlglot import Dialect, TokenType
    from sqlglot.dialects.spark import Spark
    from sqlglot.parsers.spark import SparkParser


class FlinkTokenizer(Spark.Tokenizer):
    """A quote in a text is written twice, and a backslash is a backslash."""

    QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    # What follows EXECUTE is words, as in EXECUTE STATEMENT SET, and not one text up to the semicolon.
    COMMANDS: ClassVar[set[TokenType]] = Spark.Tokenizer.COMMANDS - {TokenType.EXECUTE}


class KsqldbTokenizer(FlinkTokenizer):
    """Names may have double quotes."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']


class FlinkParser(SparkParser):
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


READ_AS: Final[dict[str, str | type[Dialect]]] = {
    "flink": FlinkReader,
    "ksqldb": KsqldbReader,
    "azure": "tsql",
    "risingwave": "risingwave",
    "materialize": "materialize",
    "snowflake": "snowflake",
    "bigquery": "bigquery",
    "trino": "trino",
}
