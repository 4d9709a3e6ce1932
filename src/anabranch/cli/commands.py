"""The tree of verbs, each loaded on use, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, Final, NoReturn, TextIO

import typer
from typer.core import TyperGroup
from typer.main import get_command

from anabranch import __version__
from anabranch.cli.declare import VerbApp
from anabranch.cli.options import add_shared_options, invocation, root_option
from anabranch.cli.output import print_note
from anabranch.cli.root_help import print_root_help
from anabranch.cli.verbs import INTRODUCTION, VERBS
from anabranch.core.redact import redacted
from anabranch.errors import AnabranchError


class _Commands(Mapping[str, Any]):
    """The commands by verb. A command's module is imported when the command is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def _command(name: str) -> Any:
    """The command of a verb. It is built once, also where several command lines are run in one process."""
    verb = VERBS[name]
    module, _, attribute = verb.where.rpartition(".")
    found = getattr(import_module(f"anabranch.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = get_command(found)
        command.help = verb.summary
    else:
        app = VerbApp()
        app.command()(found)
        command = get_command(app)
    command.name, command.rich_help_panel = name, verb.panel
    _reflow(command)
    add_shared_options(command)
    return command


def _reflow(command: Any) -> None:
    """Join the lines of each paragraph of help, so that they wrap at the terminal's width and not where the source
    wraps. Examples, which are indented, stay unchanged."""
    paragraphs = cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(p if re.search(r"^ ", p, re.MULTILINE) else p.replace("\n", " ") for p in paragraphs)
    for verb in getattr(command, "commands", {}).values():
        _reflow(verb)


_MESSAGE_CHARS_MAX: Final = 2_000

# The error for a wrong option or a missing argument; Typer has no public name for it.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Root(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        commands: Any = _Commands()
        self.commands = commands

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help that `anabranch --help` prints without loading this module."""
        print_root_help()

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the options that stand before the verb."""
        try:
            return super().make_context(*arguments, **options)
        except _UsageError as exc:
            _misused(exc)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the verb that the arguments begin with: the one of two words where there is one."""
        two = " ".join(args[:2])
        return super().resolve_command(ctx, [two, *args[2:]] if two in VERBS else args)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb and turn its errors into exit codes: 2 if it could not be done, 130 for Ctrl-C, 0 if the reader
        of the output closed it early."""
        try:
            with _warnings_as_lines():
                result = super().invoke(ctx)
            sys.stdout.flush()
        except _UsageError as exc:
            _misused(exc)
        except AnabranchError as exc:
            _fail(str(exc))
        except BrokenPipeError:
            _silence()
            raise typer.Exit(0) from None
        except OSError as exc:
            _fail(f"{exc.filename}: {exc.strerror}" if exc.filename and exc.strerror else str(exc))
        except Exception as exc:
            if type(exc).__module__.partition(".")[0] not in ("pyspark", "py4j"):
                raise
            from anabranch.spark.explain import explain

            _fail(explain(exc))
        except KeyboardInterrupt:
            _print_traceback()
            _silence()
            raise typer.Exit(130) from None
        return result


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Report assumptions about times, and events on the wrong side of a cut, as lines on stderr, each once."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category.__name__ not in ("TimeWarning", "MisplacedEventsWarning"):
            usual(message, category, filename, lineno, file, line)
        else:
            text = str(message).replace("set time_zone", "choose one with --time-zone (UTC for this one)")
            print_note(f"anabranch: warning: {text}")

    times = sys.modules.get("anabranch.model.times")
    if times is not None:  # a later invocation in the same process
        times.reset_warnings()
    with warnings.catch_warnings():
        usual = warnings.showwarning
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield


def _misused(exc: Any) -> NoReturn:
    if type(exc).__name__ == "NoArgsIsHelpError":  # the help has been printed already
        raise exc
    message = exc.format_message().rstrip(".")
    path = exc.ctx.command_path if exc.ctx is not None else "anabranch"
    _fail(f"{message[:1].lower()}{message[1:]}; see: {path} --help")


def _fail(message: str) -> NoReturn:
    _print_traceback()
    print_note(f"anabranch: {redacted(_shortened(' '.join(message.split())))}")
    raise typer.Exit(2) from None


def _shortened(message: str) -> str:
    """A message that quotes what is very long, without its middle: its begin and its end say what is wrong."""
    left_out = len(message) - _MESSAGE_CHARS_MAX
    if left_out <= 0:
        return message
    half = _MESSAGE_CHARS_MAX // 2
    return f"{message[:half]} …({left_out:,} characters)… {message[-half:]}"


def _print_traceback() -> None:
    if invocation.debug:
        for line in traceback.format_exc().splitlines():
            print_note(redacted(line))


def _silence() -> None:
    """Redirect the interpreter's final flush of stdout to the null device, so that it does not raise."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):  # a stdout without a file descriptor, as in tests
        pass


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"anabranch {__version__}")
        raise typer.Exit


@app.callback(help=INTRODUCTION)
def _root(
    store: Annotated[str | None, root_option("store")] = None,
    blobs: Annotated[str | None, root_option("blobs")] = None,
    history: Annotated[str | None, root_option("history")] = None,
    keys: Annotated[str | None, root_option("keys")] = None,
    time_zone: Annotated[str | None, root_option("time_zone")] = None,
    debug: Annotated[bool, root_option("debug")] = False,
    version: Annotated[bool, root_option("version", callback=_print_version, is_eager=True)] = False,
) -> None:
    invocation.store, invocation.blobs, invocation.history = store, blobs, history
    invocation.keys, invocation.time_zone, invocation.debug = keys, time_zone, debug
    invocation.truncate_times = False
