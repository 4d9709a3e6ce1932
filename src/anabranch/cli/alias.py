"""`anabranch alias` and `anabranch unalias`: further names for streams."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app, open_names
from anabranch.cli.output import print_columns, print_json, say
from anabranch.errors import InvalidArgument

alias_app = new_app()
unalias_app = new_app()


@alias_app.command()
def alias(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The further name, as scope/name.")] = None,
    stream: Annotated[str | None, typer.Argument(metavar="[STREAM]", help="The stream that it leads to.")] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="SCOPE", help="With no names: only aliases in this scope.")
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Let a stream answer to one more name, for whatever is done with it; or with no names, list the aliases.

    An alias follows its stream when that is renamed, and goes with it. Take care: deleting by an alias deletes the stream.

    Examples:

      anabranch alias iot/newest iot/sensors-2026
      anabranch alias
      anabranch alias --scope iot --json | jq -r '.[].alias'
    """
    if name is not None and stream is None:
        raise InvalidArgument("say the alias and its stream, as: anabranch alias iot/newest iot/sensors")
    if name is not None and scope is not None:
        raise InvalidArgument("--scope says which aliases are listed: leave the names out, or --scope")
    with open_names(store) as names:
        if name is None or stream is None:
            found = dict(names.streams.list_aliases(scope))
        else:
            names.streams.alias(stream, name)
            found = names.streams.aliases(name)
    told = [{"alias": str(each), "stream": str(of)} for each, of in found.items()]
    if name is not None:
        (made,) = [each for each in told if each["alias"] == name]
        if as_json:
            print_json(made)
        else:
            say(f"'{name}' is an alias of '{made['stream']}'")
    elif as_json:
        print_json(told)
    else:
        print_columns(("ALIAS", "STREAM"), [(each["alias"], each["stream"]) for each in told])


@unalias_app.command()
def unalias(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The alias, as scope/name.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Take an alias away. The stream stays.

    Example:

      anabranch unalias iot/newest
    """
    with open_names(store) as names:
        names.streams.unalias(name)
    if as_json:
        print_json({"alias": name})
    else:
        say(f"'{name}' is no alias any more")
