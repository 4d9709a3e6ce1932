"""`anabranch translate`: SQL of other systems as SQL of queries and pipelines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from anabranch import limits
from anabranch.cli.input_files import read_text
from anabranch.cli.options import new_app
from anabranch.errors import InvalidArgument

app = new_app()

DialectOption = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="NAME",
        help="The SQL is of: flink, ksqldb, azure, risingwave, materialize, snowflake, bigquery or trino.",
    ),
]


@app.command()
def translate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The statements; - is stdin.")],
    dialect: DialectOption = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="query|pipeline",
            help="Translate every statement into this; default: what the statement needs.",
        ),
    ] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="SCOPE", help="The scope of streams that are named without one.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="COLUMN", help="The column of event times, where the dialect names none."),
    ] = None,
) -> None:
    """Print SQL of another system as SQL of a query or of a pipeline.

    A statement that writes, or that has windows, becomes a pipeline's; others become a query's. Of declarations of
    tables only the watermarks are used. Syntax without a translation is refused with its line and character; the error
    suggests the nearest syntax that has one.

    Examples:

      anabranch translate --dialect flink job.sql --scope iot > job-anabranch.sql
      echo 'SELECT device, COUNTIF(celsius > 30) AS hot FROM iot.sensors GROUP BY 1' | anabranch translate - --dialect bigquery
    """
    from anabranch.query.dialects.translate import DialectOptions
    from anabranch.query.dialects.translate import translate as translated

    if dialect is None:
        raise InvalidArgument("pass the dialect of the SQL with --dialect")
    if to not in (None, "query", "pipeline"):
        raise InvalidArgument(f"expected --to query or --to pipeline, got '{to}'")
    text = read_text(Path(file), what="the file of statements", bytes_max=limits.SQL_BYTES_MAX)
    sys.stdout.write(translated(text, dialect, to, DialectOptions(scope, time)))  # type: ignore[arg-type]
