"""The tree of verbs, each loaded when it is asked for, and the one place where errors become lines and exit codes."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from anabranch.cli.options import (
    BLOBS_VARIABLE,
    DEFAULT_STORE,
    HISTORY_VARIABLE,
    KEYS_VARIABLE,
    STORE_VARIABLE,
    invocation,
)
from anabranch.errors import AnabranchError


class _Noun(NamedTuple):
    module: str
    panel: str
    app: str = "app"


_NOUNS = {
    "scope": _Noun("scope", "Scopes and streams"),
    "stream": _Noun("stream", "Scopes and streams"),
    "copy": _Noun("copy", "Scopes and streams"),
    "append": _Noun("append", "Scopes and streams"),
    "stitch": _Noun("stitch", "Scopes and streams"),
    "cut": _Noun("cut", "Scopes and streams", "cut_app"),
    "distance": _Noun("cut", "Scopes and streams", "distance_app"),
    "compare": _Noun("compare", "Scopes and streams", "compare_app"),
    "contains": _Noun("compare", "Scopes and streams", "contains_app"),
    "diff": _Noun("diff", "Scopes and streams", "diff_app"),
    "lineage": _Noun("diff", "Scopes and streams", "lineage_app"),
    "rename": _Noun("rename", "Scopes and streams", "rename_app"),
    "move": _Noun("rename", "Scopes and streams", "move_app"),
    "alias": _Noun("alias", "Scopes and streams", "alias_app"),
    "unalias": _Noun("alias", "Scopes and streams", "unalias_app"),
    "archive": _Noun("archive", "Scopes and streams"),
    "import": _Noun("import_archive", "Scopes and streams"),
    "attach": _Noun("attach", "Scopes and streams"),
    "digest": _Noun("digest", "Scopes and streams"),
    "job": _Noun("job", "Scopes and streams"),
    "write": _Noun("write", "Events"),
    "read": _Noun("read", "Events"),
    "query": _Noun("query", "Events"),
    "bytes": _Noun("byte_files", "Events"),
    "txn": _Noun("txn", "Events"),
    "group": _Noun("group", "Events"),
    "watch": _Noun("watch", "Events"),
    "watermark": _Noun("watermark", "Events"),
    "pipeline": _Noun("pipeline", "Pipelines"),
    "demo": _Noun("demo", "Pipelines"),
    "compact": _Noun("maintain", "Upkeep", "compact_app"),
    "collect": _Noun("maintain", "Upkeep", "collect_app"),
    "retain": _Noun("maintain", "Upkeep", "retain_app"),
    "check": _Noun("maintain", "Upkeep", "check_app"),
    "backup": _Noun("backup", "Upkeep"),
    "restore": _Noun("restore", "Upkeep"),
    "rebuild": _Noun("rebuild", "Upkeep"),
    "key": _Noun("key", "Upkeep"),
    "metrics": _Noun("metrics", "Upkeep"),
    "version": _Noun("version", "Upkeep"),
}


class _Nouns(Mapping[str, Any]):
    """The commands by name. A module is imported when its command is taken."""

    def __getitem__(self, name: str) -> Any:
        noun = _NOUNS[name]
        command: Any = get_command(getattr(import_module(f"anabranch.cli.{noun.module}"), noun.app))
        command.name, command.rich_help_panel = name, noun.panel
        _reflow(command)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_NOUNS)

    def __len__(self) -> int:
        return len(_NOUNS)


def _reflow(command: Any) -> None:
    """Join the lines of each paragraph of help, so that they break where the terminal does and not where our source does.
    Examples, which are indented, stay as they are."""
    paragraphs = cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(p if re.search(r"^ ", p, re.MULTILINE) else p.replace("\n", " ") for p in paragraphs)
    for verb in getattr(command, "commands", {}).values():
        _reflow(verb)


# What a wrong option or a missing argument is; Typer has no public name for it.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Root(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        commands: Any = _Nouns()
        self.commands = commands

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read what stands before the verb."""
        try:
            return super().make_context(*arguments, **options)
        except _UsageError as exc:
            _misused(exc)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb. What it raises ends here: 2 for what can't be done, 130 for Ctrl-C, 0 where the reader of our
        output has had enough."""
        try:
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
        except KeyboardInterrupt:
            if invocation.debug:
                traceback.print_exc()
            _silence()
            raise typer.Exit(130) from None
        return result


def _misused(exc: Any) -> NoReturn:
    if type(exc).__name__ == "NoArgsIsHelpError":  # the help is shown by then
        raise exc
    message = exc.format_message().rstrip(".")
    path = exc.ctx.command_path if exc.ctx is not None else "anabranch"
    _fail(f"{message[:1].lower()}{message[1:]}; see: {path} --help")


def _fail(message: str) -> NoReturn:
    if invocation.debug:
        traceback.print_exc()
    print(f"anabranch: {' '.join(message.split())}", file=sys.stderr)
    raise typer.Exit(2) from None


def _silence() -> None:
    """Let the interpreter flush what is left of our output into nothing, instead of complaining."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):  # a stdout without a file, as in tests
        pass


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="PATH",
            envvar=STORE_VARIABLE,
            help=f"The store's folder, {DEFAULT_STORE} if not given, or the URL of its PostgreSQL catalog.",
        ),
    ] = None,
    blobs: Annotated[
        str | None,
        typer.Option(
            "--blobs",
            metavar="PATH",
            envvar=BLOBS_VARIABLE,
            help="Where the bytes are: a folder, or s3://bucket/prefix?endpoint=…; needed with PostgreSQL.",
        ),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="PATH",
            envvar=HISTORY_VARIABLE,
            help="Where compacted files are, if it is somewhere else. Say it for every verb, as --blobs.",
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="PLACE",
            envvar=KEYS_VARIABLE,
            help="The keys of an encrypted store: file:/path, or env:NAME for a variable that holds them.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ANABRANCH_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Anabranch: streams that are used like files.

    A stream is called scope/name and lives in a store, which is a folder. A first session:

      anabranch scope create iot
      anabranch write iot/sensors measurements.csv --key device --time at
      anabranch read iot/sensors --limit 10
      anabranch query 'SELECT device, max(celsius) FROM iot.sensors GROUP BY 1'

    Exit codes: 0 done, 1 check found something, 2 it could not be done (one line on stderr says why), 130 interrupted.
    """
    invocation.store, invocation.blobs, invocation.history = store, blobs, history
    invocation.keys, invocation.debug = keys, debug
