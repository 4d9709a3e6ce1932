"""Which dialect of sqlglot reads each dialect. Flink's and ksqlDB's, which sqlglot does not know, are made of Spark's."""

from __future__ import annotations

from typing import ClassVar, Final

from anabranch.errors.optional import optional

with optional("a translation of SQL", "spark"):
    from sqlglot import Dialect
    from sqlglot.dialects.spark import Spark
    from sqlglot.parsers.spark import SparkParser


class FlinkReader(Spark):
    """A quote in a text is written twice, and a backslash is a backslash."""

    SAFE_DIVISION = False
    TYPED_DIVISION = True

    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]

    class Parser(SparkParser):
        STRICT_CAST = True


class KsqldbReader(Spark):
    """As Flink's, but that names may have double quotes, and a cast that fails is null."""

    SAFE_DIVISION = False
    TYPED_DIVISION = True

    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]


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
