"""How a verb is declared: as a function, whose parameters have an option or an argument as their default.

    def read(stream: str = argument("STREAM", "Its name."), limit: int | None = option("--limit -n", "N", "How many.")) -> None

Options that belong together are a group: a dataclass whose fields have them as defaults, and the type of a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

import typer

_Verb = TypeVar("_Verb", bound=Callable[..., None])


class VerbApp(typer.Typer):
    """An app of verbs, which may take groups of options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(add_completion=False, rich_markup_mode="rich", **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Verb], _Verb]:
        """Adds the function as a verb."""

        def add(verb: _Verb) -> _Verb:
            super(VerbApp, self).command(name, **settings)(_ungrouped(verb))
            return verb

        return add


def new_app() -> VerbApp:
    """Returns an app for a noun's verbs."""
    return VerbApp(no_args_is_help=True)


def _ungrouped(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as typer takes it: with an option, or argument, for each field of its groups."""
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in signature(verb, eval_str=True).parameters.items():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(group)
        parameters += [
            Parameter(
                f"{name}_{field.name}", Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in fields(group)
        ]
        groups[name] = group, [field.name for field in fields(group)]

    @wraps(verb)
    def run(**values: Any) -> None:
        for name, (group, members) in groups.items():
            values[name] = group(**{member: values.pop(f"{name}_{member}") for member in members})
        verb(**values)

    run.__dict__["__signature__"] = signature(verb).replace(parameters=parameters)
    return run


def option(flags: str, metavar: str | None, help: str, *, default: Any = None, **more: Any) -> Any:  # noqa: A002
    """An option with a value: its flags, such as "--limit -n", what its help calls the value (None: by its type), and its
    help. It has to be given if the default is `...`."""
    return typer.Option(default, *flags.split(), metavar=metavar, help=help, **more)


def flag(flags: str, help: str, *, default: bool | None = False) -> Any:  # noqa: A002 - typer's own word
    """An option without a value: its flags, such as "--yes -y", and its help."""
    return typer.Option(default, *flags.split(), help=help)


def argument(metavar: str, help: str, *, default: Any = ..., **more: Any) -> Any:  # noqa: A002 - typer's own word
    """A positional argument: what its help calls the value, and its help. It has to be given if there is no default."""
    return typer.Argument(default, metavar=metavar, help=help, **more)


def without_store(verb: _Verb) -> _Verb:
    """Marks a verb that opens no store, and so takes no options for one."""
    verb.__dict__["opens_store"] = False
    return verb


def opens_store(verb: Any) -> bool:
    """True unless the verb is marked."""
    return bool(getattr(verb, "opens_store", True))
