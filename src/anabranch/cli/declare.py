"""How a verb is declared: its app, its arguments and options, and whether it opens a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer

_Verb = TypeVar("_Verb", bound=Callable[..., None])


def new_app() -> typer.Typer:
    """Returns an app for a noun's verbs."""
    return typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


def option(flags: str, metavar: str, help: str, **more: Any) -> Any:  # noqa: A002 - typer's own word
    """An option with a value: its flags, such as "--limit -n", what its help calls the value, and its help."""
    return typer.Option(*flags.split(), metavar=metavar, help=help, **more)


def flag(flags: str, help: str) -> Any:  # noqa: A002 - typer's own word
    """An option without a value: its flags, such as "--yes -y", and its help."""
    return typer.Option(*flags.split(), help=help)


def argument(metavar: str, help: str, **more: Any) -> Any:  # noqa: A002 - typer's own word
    """A positional argument: what its help calls the value, and its help."""
    return typer.Argument(metavar=metavar, help=help, **more)


def without_store(verb: _Verb) -> _Verb:
    """Marks a verb that opens no store, and so takes no options for one."""
    verb.__dict__["opens_store"] = False
    return verb


def opens_store(verb: Any) -> bool:
    """True unless the verb is marked."""
    return bool(getattr(verb, "opens_store", True))
