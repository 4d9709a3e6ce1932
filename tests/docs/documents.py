"""Runs the commands of a page: its named files are written, its `$` lines run in a shell, their output compared.

In a block of `console`, a line that begins with `$ ` is a command and the lines below it are what it prints. `…` stands
for any text, also for several lines where it is alone. Blocks with a `title` are files. Other blocks are not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMAND_S = 300


class Command(NamedTuple):
    """A shell command and the output that the page shows for it."""

    line: str
    shown: str


class File(NamedTuple):
    """A file that the page tells its reader to write."""

    name: str
    text: str


def steps(page: str) -> Iterator[Command | File]:
    """The files and commands of a page, in order."""
    for language, title, text in _BLOCK.findall(page):
        if title:
            yield File(title, text)
        elif language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, _, shown = part.partition("\n")
                yield Command(line, shown)


def follow(page: Path, folder: Path) -> int:
    """Do what a page says in `folder`; returns how many commands ran. Raises AssertionError, naming the command whose exit
    code is not 0 or whose output is not the one shown."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["COLUMNS"] = "120"
    commands = 0
    for step in steps(page.read_text()):
        if isinstance(step, File):
            (folder / step.name).write_text(step.text)
            continue
        run = subprocess.run(
            ["sh", "-c", step.line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        said = "\n".join(line.rstrip() for line in (run.stdout + run.stderr).splitlines())
        assert run.returncode == 0, f"$ {step.line}\n{said}"
        assert matches(said, step.shown), f"$ {step.line}\nprinted:\n{said}\nshown:\n{step.shown}"
        commands += 1
    return commands


def matches(said: str, shown: str) -> bool:
    """Whether an output is the one shown, in which `…` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None
