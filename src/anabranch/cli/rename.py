"""`anabranch rename` and `anabranch move`: change the names of streams."""

from __future__ import annotations

from anabranch.cli.declare import argument
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_catalog
from anabranch.cli.output import print_result


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
