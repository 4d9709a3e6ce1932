"""`anabranch rename`, `move`, `alias` and `unalias`: the names of streams."""

from __future__ import annotations

from anabranch.cli.declare import argument, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_catalog
from anabranch.cli.output import print_columns, print_json, print_result
from anabranch.errors import InvalidArgument


def rename(
    stream: str = STREAM_ARGUMENT,
    name: str = argument("NAME", "The new name, as scope/name."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Give a stream another name. Open readers and writers continue; using the old name gives an error that names the
    new one.

    Example:

      anabranch rename iot/sensors iot/thermometers
    """
    with open_catalog() as names:
        info = names.streams.rename(stream, name)
    _print_renamed(stream, str(info.name), as_json)


def move(
    stream: str = STREAM_ARGUMENT,
    scope: str = argument("SCOPE", "The scope to move to; it must exist."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Move a stream to another scope. Open readers and writers continue; using the old name gives an error that names
    the new one.

    Example:

      anabranch move iot/sensors archive
    """
    with open_catalog() as names:
        info = names.streams.move(stream, scope)
    _print_renamed(stream, str(info.name), as_json)


def _print_renamed(old: str, new: str, as_json: bool) -> None:
    print_result(as_json, {"name": new, "former": old}, f"'{old}' was renamed to '{new}'")


def alias(
    name: str | None = argument("[NAME]", "The further name, as scope/name.", default=None),
    stream: str | None = argument("[STREAM]", "The stream that it leads to.", default=None),
    scope: str | None = option("--scope", "SCOPE", "With no names: only aliases in this scope."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Give a stream one more name, usable wherever its name is; or without arguments, list the aliases.

    An alias follows its stream when that is renamed, and is removed with it. Take care: deleting by an alias deletes
    the stream.

    Examples:

      anabranch alias iot/newest iot/sensors-2026
      anabranch alias
      anabranch alias --scope iot --json | jq -r '.[].alias'
    """
    if name is not None and stream is None:
        raise InvalidArgument("expected an alias and its stream, for example: anabranch alias iot/newest iot/sensors")
    if name is not None and scope is not None:
        raise InvalidArgument("--scope lists aliases: omit either the names or --scope")
    with open_catalog() as names:
        if name is None or stream is None:
            found = dict(names.aliases.list(scope))
        else:
            names.aliases.add(stream, name)
            found = names.aliases.of(name)
    rows = [{"alias": str(each), "stream": str(of)} for each, of in found.items()]
    if name is not None:
        (created,) = [each for each in rows if each["alias"] == name]
        print_result(as_json, created, f"'{name}' is an alias of '{created['stream']}'")
    elif as_json:
        print_json(rows)
    else:
        print_columns(("ALIAS", "STREAM"), [(each["alias"], each["stream"]) for each in rows])


def unalias(name: str = argument("NAME", "The alias, as scope/name."), as_json: bool = JSON_OPTION) -> None:
    """Remove an alias. The stream stays.

    Example:

      anabranch unalias iot/newest
    """
    with open_catalog() as names:
        names.aliases.remove(name)
    print_result(as_json, {"alias": name}, f"'{name}' is no longer an alias")
