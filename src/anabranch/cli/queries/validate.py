"""Checks statements with Spark, without running them."""

from __future__ import annotations

from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import print_columns, print_json, print_note
from anabranch.cli.statement_options import QueryFileOptions, StatementFileOptions


def validate(
    statements: StatementFileOptions,
    *,
    files: QueryFileOptions,
    as_json: bool = JSON_OPTION,
) -> None:
    """Check a file with Spark, without running it: missing streams, unknown columns, what can't run on streams. Prints
    the streams that it reads, the columns of its results, and its parameters. With a broker's address, a query host runs
    the check.

    Example:

      anabranch queries validate means.sql --param size='1 minute'
    """
    from dataclasses import asdict

    from anabranch.remote.address import is_broker

    with open_store() as opened:
        text, parameters, contents = statements.text(opened), statements.parameters, files.read() or {}
        if is_broker(opened.url):
            found = opened.queries.validate(text, parameters=parameters, files=contents)
        else:
            from anabranch.deployments.files import check_files
            from anabranch.spark.pipelines.declared_functions.declared import check_code
            from anabranch.spark.pipelines.plan import functions_of, plan
            from anabranch.spark.queries.validate import validate as check

            listed = check_files(contents)
            check_code(functions_of(plan(text, parameters, listed)), contents)
            found = check(opened, text, parameters=parameters, files=listed)
    if as_json:
        print_json(asdict(found))
        return
    for each in found.parameters:
        print_note(f"parameter {each.name}: {each.type}{'' if each.default is None else f', default {each.default!r}'}")
    print_columns(
        ("RESULT", "COLUMN", "TYPE", "READS"),
        [
            (each.target, column, kind, "" if number else ", ".join((*each.sources, *each.tables)))
            for each in found.statements
            for number, (column, kind) in enumerate(each.columns.items())
        ],
    )
