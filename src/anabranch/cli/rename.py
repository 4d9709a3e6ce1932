"""`anabranch rename` and `anabranch move`: change the names of streams."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, StreamArgument, new_app, open_catalog
from anabranch.cli.output import print_json, print_note

rename_app = new_app()
move_app = new_app()


@rename_app.command()
def rename(
    stream: StreamArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name, as scope/name.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Give a stream another name. Open readers and writers continue; using the old name gives an error that names the
    new one.

    Example:

      anabranch rename iot/sensors iot/thermometers
    """
    with open_catalog(store) as names:
        info = names.streams.rename(stream, name)
    _print_renamed(stream, str(info.name), as_json)


@move_app.command()
def move(
    stream: StreamArgument,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="The scope to move to; it must exist.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Move a stream to another scope. Open readers and writers continue; using the old name gives an error that names
    the new one.

    Example:

      anabranch move iot/sensors archive
    """
    with open_catalog(store) as names:
        info = names.streams.move(stream, scope)
    _print_renamed(stream, str(info.name), as_json)


def _print_renamed(old: str, new: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": new, "former": old})
    else:
        print_note(f"'{old}' was renamed to '{new}'")
