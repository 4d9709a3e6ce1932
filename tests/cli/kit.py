"""Running the command line in this process (fast) and as a process of its own (real)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer.testing
from typer.main import get_command
from typer.testing import CliRunner

from anabranch.cli.commands import app
from tests.waiting import PATIENCE_S

CSV = "device,at,celsius\na,2026-01-01T00:00:00Z,1.5\nb,2026-01-01T00:00:01Z,2.5\na,2026-01-01T00:00:02Z,3.5\n"
SCHEMA = "device:string, at:timestamp, celsius:double"

# Typer's runner builds the command line anew for each call, which takes longer than some verbs.
typer.testing._get_command = cache(get_command)  # type: ignore[attr-defined]


class Outcome(NamedTuple):
    """What a run gave."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        """Its one JSON value."""
        return json.loads(self.out)


class Line:
    """The command line over one store."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def __call__(self, *arguments: object, stdin: str | bytes = b"", code: int | None = 0) -> Outcome:
        """Run in this process and expect an exit code; None: any."""
        given = ["--store", str(self.store), *map(str, arguments)]
        done = CliRunner().invoke(app, given, input=stdin, prog_name="anabranch")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        outcome = Outcome(done.exit_code, done.stdout, done.stderr)
        assert code is None or outcome.code == code, outcome
        return outcome

    def refused(self, *arguments: object, stdin: str | bytes = b"") -> str:
        """Run what can't be done: exit code 2, nothing on stdout, one line on stderr, which is returned."""
        outcome = self(*arguments, stdin=stdin, code=2)
        assert outcome.out == "", outcome
        lines = outcome.err.splitlines()
        assert len(lines) == 1, outcome
        assert lines[0].startswith("anabranch: "), outcome
        return lines[0].removeprefix("anabranch: ")

    def command(self, *arguments: object) -> list[str]:
        """The same for a process of its own."""
        return [sys.executable, "-m", "anabranch.cli.main", "--store", str(self.store), *map(str, arguments)]

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        """A process of its own, with pipes."""
        pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.command(*arguments), **{**pipes, "env": environment(), **options})

    def process(self, *arguments: object, stdin: bytes = b"", **options: Any) -> Outcome:
        """Run a process of its own to its end."""
        with self.start(*arguments, **options) as process:
            out, err = process.communicate(stdin, timeout=PATIENCE_S)
        return Outcome(process.returncode, out.decode(), err.decode())


def environment(**more: str) -> dict[str, str]:
    """The environment for a process: without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([path for path in sys.path if path]), **more}


def column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """One member of each row."""
    return [row[name] for row in rows]
