"""Parses pipeline SQL into statements. Pure: no Spark, no store, no files.

    CREATE STREAM scope.out WITH (key = device, time = closed, watermark = '10 seconds', trigger = '1 second') AS
    SELECT window.end AS closed, device, count(*) AS events
    FROM STREAM scope.source JOIN scope.devices USING (device)
    GROUP BY window(at, '10 seconds'), device;

The query itself is Spark SQL. Only the names of streams are replaced by those of temporary views, in place, so the line
numbers in Spark's messages stay correct. Spark checks everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch import limits
from anabranch.catalog.state.query_version import QueryFile
from anabranch.core.sql_parameters import bind, declarations
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidSql
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.sql.create_function import declared_functions, is_function
from anabranch.spark.pipelines.sql.create_stream import created_stream
from anabranch.spark.pipelines.sql.rewrites import with_bloom_filters, with_names, with_spark_names
from anabranch.spark.pipelines.sql_tokens import check_complexity, is_declaration, split_statements, tokenize
from anabranch.spark.pipelines.statement import Statement

__all__ = ["parse"]


def parse(
    text: str, parameters: Mapping[str, str] | None = None, files: Sequence[QueryFile] = ()
) -> tuple[Statement, ...]:
    """Parse a file of `;`-separated CREATE STREAM statements, in file order. `parameters` are values, as text, of those
    that it declares (`anabranch.core.sql_parameters`). `files` are those with the code of its functions
    (`anabranch.spark.pipelines.declared_functions`).

    Raises InvalidSql with the line for anything but well-formed statements, for two statements with the same target,
    for statements that feed each other in a cycle, and for more than `limits.PIPELINE_STATEMENTS_MAX`; TooLarge.
    """
    statements: list[Statement] = []
    check_sql_text(text, what="the text", bytes_max=limits.DEPLOYMENT_TEXT_BYTES_MAX)
    tokens = tokenize(text)
    check_complexity(tokens)
    declared = declarations(text)
    values = bind(declared, parameters or {})
    text = with_names(text, tokens, declared, values)
    text = with_bloom_filters(text, tokenize(text))
    tokens = tokenize(text)
    functions = declared_functions(text, split_statements(tokens), files)
    text = with_spark_names(text, tokens, functions)
    queries = [each for each in split_statements(tokenize(text)) if not is_declaration(each) and not is_function(each)]
    if len(queries) > limits.PIPELINE_STATEMENTS_MAX:
        raise InvalidSql(
            f"there are {len(queries):,} statements, over the limit of {limits.PIPELINE_STATEMENTS_MAX}: use several files",
            line=queries[limits.PIPELINE_STATEMENTS_MAX][0].line,
        )
    for number, tokens in enumerate(queries, start=1):
        statements.append(created_stream(Cursor(text, tokens, values), number, functions))
    if not statements:
        raise InvalidSql("no statement found; expected CREATE STREAM scope.name AS SELECT …", line=1)
    _refuse_duplicates(statements)
    _refuse_circles(statements)
    return tuple(statements)


def _refuse_duplicates(statements: Sequence[Statement]) -> None:
    lines: dict[StreamName, int] = {}
    for statement in statements:
        for name in statement.targets:
            if name in lines:
                raise InvalidSql(f"'{name}' is written by the statement on line {lines[name]} too", line=statement.line)
            lines[name] = statement.line


def _refuse_circles(statements: Sequence[Statement]) -> None:
    writers = {target: statement for statement in statements for target in statement.targets}
    done: set[StreamName] = set()

    def visit(statement: Statement, path: tuple[StreamName, ...]) -> None:
        if statement.target in path:
            circle = " → ".join(str(name) for name in (*path[path.index(statement.target) :], statement.target))
            raise InvalidSql(
                f"statements feed each other in a circle: {circle}; close the loop in one of them with: FEEDBACK WITHIN 10 HOPS "
                "INTO scope.name WHEN condition",
                line=statement.line,
            )
        if statement.target in done:
            return
        for source in statement.sources.values():
            if source in writers:
                visit(writers[source], (*path, statement.target))
        done.add(statement.target)

    for statement in statements:
        visit(statement, ())
