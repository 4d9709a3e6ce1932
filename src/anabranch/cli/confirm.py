"""Asking for confirmation before a verb removes something for good.

Which verbs ask is listed in `docs/reference/command-line.md`; a test holds the verbs to it.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Final, TextIO

import typer

from anabranch.cli.declare import flag
from anabranch.core.terminal import terminal_text
from anabranch.errors import InvalidArgument

YES_OPTION: Final = flag("--yes -y", "Do not ask; required without a terminal.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is removed for good. The question goes to stderr, or if that is not a terminal to the
    terminal device, never to stdout. Exits with code 1 unless the answer is yes. Raises InvalidArgument if stdin is
    no terminal, unless `yes` is given."""
    if yes:
        return
    with ExitStack() as stack:
        screen = _screen(stack)
        if screen is None:
            raise InvalidArgument(f"{question} No terminal to ask on: add --yes to confirm")
        print(f"{terminal_text(question)} [y/N]: ", end="", file=screen, flush=True)
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):  # end of input
            print(file=screen)
        if answer.strip().lower() not in ("y", "yes"):
            print("nothing was changed", file=screen)
            raise typer.Exit(1)


def _screen(stack: ExitStack) -> TextIO | None:
    """Returns where to print a question that can be answered on stdin; None if there is no terminal to answer on."""
    if not sys.stdin.isatty():
        return None
    if sys.stderr.isatty():
        return sys.stderr
    try:
        return stack.enter_context(open("/dev/tty", "w", encoding="utf-8"))
    except OSError:  # stdin is a terminal, but not this process's controlling one
        return None
