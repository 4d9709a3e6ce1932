"""`anabranch scope`: namespaces of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.options import JsonOption, StoreOption, TagOption, new_app, open_names, parse_tags
from anabranch.cli.output import confirm, counted, iso_time, print_columns, print_json, say

if TYPE_CHECKING:
    from anabranch.model.stream import Scope

app = new_app("Create, list and delete scopes: the namespaces of streams.")

ScopeArgument = Annotated[str, typer.Argument(metavar="SCOPE", help="The scope's name.")]


@app.command()
def create(
    name: ScopeArgument,
    tag: TagOption = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Do nothing if there is such a scope.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Create a scope, and the store where there is none.

    Examples:

      anabranch scope create iot
      anabranch scope create iot --tag owner=plant-7
    """
    tags = parse_tags(tag)
    with open_names(store, create=True) as names:
        scope = names.streams.create_scope(name, tags=tags, exist_ok=exist_ok)
    if as_json:
        print_json(_described(scope))
    else:
        say(f"scope '{name}' is there")


@app.command("list")
def list_scopes(as_json: JsonOption = False, store: StoreOption = None) -> None:
    """List the scopes by name.

    Examples:

      anabranch scope list
      anabranch scope list --json | jq -r '.[].name'
    """
    with open_names(store) as names, names.catalog.reading() as reading:
        scopes = reading.scopes()
    if as_json:
        print_json([_described(scope) for scope in scopes])
    else:
        rows = [(s.name, iso_time(s.created_at), " ".join(f"{k}={v}" for k, v in s.tags.items())) for s in scopes]
        print_columns(("SCOPE", "CREATED", "TAGS"), rows)


@app.command()
def delete(
    name: ScopeArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
) -> None:
    """Delete a scope that holds no streams.

    Example:

      anabranch scope delete iot
    """
    with open_names(store) as names:
        names.streams.scope(name)
        confirm(f"Delete scope '{name}'?", yes=yes)
        names.streams.delete_scope(name)
    say(f"scope '{name}' is deleted")


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SCOPE", help="The scope whose streams are copied.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The scope of the copies; made if need be.")],
    internal: Annotated[bool, typer.Option("--internal", help="The store's own streams too.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Copy all streams of a scope into another, at once and whatever their size. Asked again, it goes on where it was
    interrupted, and copies what is new.

    Example:

      anabranch scope copy iot iot-before-the-change
    """
    with open_names(store) as names:
        copies = names.streams.copy_scope(source, target, internal=internal)
    if as_json:
        print_json({"name": target, "streams": len(copies), "copies": [each.to_json() for each in copies]})
    else:
        say(f"scope '{target}' holds copies of {counted(len(copies), 'stream')}")


def _described(scope: Scope) -> dict[str, Any]:
    return {"name": scope.name, "created_at": iso_time(scope.created_at), "tags": dict(scope.tags)}
