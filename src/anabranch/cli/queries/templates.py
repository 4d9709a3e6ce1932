"""Lists, shows, saves and removes templates of queries."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, flag
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, print_result, put_line
from anabranch.cli.statement_options import FILE_ARGUMENT, read_statements

if TYPE_CHECKING:
    from anabranch.deployments.templates.template import QueryTemplate

TEMPLATE_ARGUMENT: Final = argument("NAME", "The template's name.")


def templates(
    name: str | None = argument("[NAME]", "Show this template. Default: list all.", default=None),
    sql: bool = flag("--sql", "With NAME: print only its statements."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List the templates: statements with parameters, to deploy a query without writing SQL. Some come with the package, and
    others were saved in the store.

    Examples:

      anabranch queries templates
      anabranch queries templates rollup
      anabranch queries deploy minutes --template rollup --param source=iot/sensors --param target=iot/minutes --param key=device --param time=at --param value=celsius
      anabranch queries templates rollup --sql >my-rollup.sql
    """
    with open_store() as opened:
        found = opened.templates.list() if name is None else [opened.templates.get(name)]
    if as_json:
        print_json(_json(found[0]) if name is not None else [_json(template) for template in found])
    elif name is None:
        print_columns(
            ("TEMPLATE", "PARAMETERS", "SAVED", "DESCRIPTION"),
            [
                (
                    template.name,
                    ", ".join(parameter.name for parameter in template.parameters) or "-",
                    iso_time(template.saved_at) or "with the package",
                    template.description or "-",
                )
                for template in found
            ],
        )
    elif sql:
        for line in found[0].text.rstrip().splitlines():
            put_line(line)
    else:
        _show(found[0])


def save_template(name: str = TEMPLATE_ARGUMENT, file: Path = FILE_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Save a file of statements as a template, or change one. The comment with which it begins is its description.
    Queries that were deployed with it stay as they are.

    Example:

      anabranch queries save-template hot hot.sql
    """
    with open_store() as opened:
        saved = opened.templates.save(name, read_statements(file))
    print_result(as_json, _json(saved), f"template '{name}' has {len(saved.parameters)} parameters")


def remove_template(name: str = TEMPLATE_ARGUMENT, yes: bool = YES_OPTION) -> None:
    """Remove a template that was saved. Queries that were deployed with it stay.

    Example:

      anabranch queries remove-template hot
    """
    with open_store() as opened:
        opened.templates.get(name)
        confirm(f"Remove template '{name}'?", yes=yes)
        opened.templates.remove(name)
    print_note(f"template '{name}' is removed")


def _show(template: QueryTemplate) -> None:
    put_line(template.name, bold=True)
    put_line(f"  {template.description}")
    put_line()
    print_columns(
        ("PARAMETER", "TYPE", "DEFAULT", "MEANING"),
        [(each.name, each.type, each.default or "-", each.meaning or "-") for each in template.parameters],
        indent="  ",
    )
    put_line()
    for line in template.text.strip().splitlines():
        put_line(f"  {line.expandtabs()}".rstrip())


def _json(template: QueryTemplate) -> dict[str, Any]:
    return asdict(template) | {"saved_at": iso_time(template.saved_at)}
