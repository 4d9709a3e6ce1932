"""`anabranch modules`: WebAssembly modules, whose functions queries call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, new_app, option
from anabranch.cli.input_files import read_module
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, print_result

if TYPE_CHECKING:
    from anabranch.catalog.state.module_version import ModuleVersion

app = new_app()

NAME_ARGUMENT: Final = argument("NAME", "The module's name.")


_Columns: TypeAlias = "Mapping[str, Callable[[ModuleVersion], object]]"
_VERSION: Final[_Columns] = {"VERSION": lambda version: version.number}
_SIZE: Final[_Columns] = {"BYTES": lambda version: version.size}


@app.command()
def add(
    name: str = NAME_ARGUMENT,
    file: Path = argument("FILE", "The module: FILE.wasm, or FILE.wat as text."),
    signature: list[str] | None = option(
        "--signature",
        "TEXT",
        "A function that it has, as 'score(celsius double) -> double'; may be given several times. "
        "Default: what its custom section 'anabranch' says.",
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Add a module, or a new version of it. Nothing of it is run.

    Queries call its functions by the names in its signatures, over whole columns: wasm.score(celsius), or just
    score(celsius) where DuckDB has no function of that name. Each call is stopped when it takes too many instructions,
    too much time or too much memory.

    Examples:

      anabranch modules add heat heat.wasm --signature 'score(celsius double) -> double'
      anabranch query 'SELECT device, wasm.score(celsius) FROM iot.sensors'
    """
    with open_store() as opened:
        version = opened.modules.add(name, read_module(file), signatures=signature or ())
    print_result(
        as_json, _json(version), f"module '{name}': version {version.number} has {', '.join(version.functions)}"
    )


@app.command("list")
def list_modules(as_json: bool = JSON_OPTION) -> None:
    """List the modules, with their functions.

    Example:

      anabranch modules list
    """
    with open_store() as opened:
        found = opened.modules.list()
    _print(found, {"MODULE": lambda version: version.module, **_VERSION, **_SIZE}, as_json=as_json)


@app.command()
def show(name: str = NAME_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show the versions of a module that are kept, oldest first. Queries use the last one.

    Example:

      anabranch modules show heat
    """
    with open_store() as opened:
        found = opened.modules.versions(name)
    added: _Columns = {"ADDED": lambda version: iso_time(version.created_at)}
    digest: _Columns = {"SHA-256": lambda version: version.digest[:16]}
    _print(found, {**_VERSION, **added, **_SIZE, **digest}, as_json=as_json)


@app.command()
def remove(name: str = NAME_ARGUMENT, yes: bool = YES_OPTION) -> None:
    """Remove a module with its versions.

    Example:

      anabranch modules remove heat
    """
    with open_store() as opened:
        count = len(opened.modules.versions(name))
        confirm(f"Remove module '{name}' with {count} version{'s' * (count != 1)}?", yes=yes)
        opened.modules.remove(name)
    print_note(f"module '{name}' is removed")


def _print(versions: Sequence[ModuleVersion], columns: _Columns, *, as_json: bool) -> None:
    """The versions as JSON, or a line for each of their functions, which are the last column."""
    if as_json:
        print_json([_json(version) for version in versions])
        return
    rows = [
        (*(value(version) for value in columns.values()), function)
        for version in versions
        for function in version.functions
    ]
    print_columns((*columns, "FUNCTION"), rows)


def _json(version: ModuleVersion) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(version) | {"created_at": iso_time(version.created_at)}
