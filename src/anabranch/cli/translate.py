"""`anabranch query translate`: SQL of other systems as SQL of queries and pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from anabranch import limits
from anabranch.cli.declare import argument, option, without_store
from anabranch.cli.input_files import read_sql
from anabranch.cli.output import put_text
from anabranch.errors import InvalidArgument

_DIALECTS: Final = "The SQL is of: flink, ksqldb, azure, risingwave, materialize, snowflake, bigquery or trino."
DIALECT_OPTION: Final = option("--dialect", "NAME", _DIALECTS)


@without_store
def translate(
    sql: str | None = argument("[SQL]", "The statements; - is stdin.", default=None),
    file: Path | None = option("--file", "FILE", "Take the statements from a file."),
    dialect: str | None = option("--from --dialect", "NAME", _DIALECTS),
    to: str | None = option(
        "--to", "query|pipeline", "Translate every statement into this; default: what the statement needs."
    ),
    scope: str | None = option("--scope", "SCOPE", "The scope of streams that are named without one."),
    time: str | None = option("--time", "COLUMN", "The column of event times, where the dialect names none."),
) -> None:
    """Print SQL of another system as SQL of a query or of a pipeline.

    A statement that writes, or that has windows, becomes a pipeline's; others become a query's. Of declarations of
    tables only the watermarks are used. Syntax without a translation is refused with its line and character; the error
    suggests the nearest syntax that has one.

    Examples:

      anabranch query translate --from flink 'SELECT device, AVG(celsius) AS celsius FROM iot.sensors GROUP BY device'
      anabranch query translate --from flink --file job.sql --scope iot > job-anabranch.sql
      echo 'SELECT device, COUNTIF(celsius > 30) AS hot FROM iot.sensors GROUP BY 1' | anabranch query translate - --from bigquery
    """
    from anabranch.query.dialects.translate import DialectOptions
    from anabranch.query.dialects.translate import translate as translated

    if dialect is None:
        raise InvalidArgument("pass the dialect of the SQL with --from")
    if to not in (None, "query", "pipeline"):
        raise InvalidArgument(f"expected --to query or --to pipeline, got '{to}'")
    text = read_sql(sql, file, what="the statements", bytes_max=limits.SQL_BYTES_MAX)
    put_text(translated(text, dialect, to, DialectOptions(scope, time)), end="")  # type: ignore[arg-type]
