"""Verbs that remove something for good ask first, or are refused where nobody can answer."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.spark.pipelines import record as pipeline_row
from anabranch.spark.pipelines.record import PipelineOutput
from tests.cli.kit import Line, environment
from tests.cli.test_help import VERBS
from tests.waiting import PATIENCE_S
from tests.wasm_modules import SCORE, heat

COMMAND_LINE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
SQL = (
    "CREATE STREAM iot.hot WITH (key = device, time = at) AS "
    "SELECT device, at FROM STREAM iot.sensors WHERE celsius > 30"
)
# Verbs that only show something.
READS = frozenset(
    {
        "scope list",
        "stream list",
        "stream show",
        "stream watermark",
        "files",
        "cut",
        "distance",
        "compare",
        "contains",
        "diff",
        "lineage",
        "archive verify",
        "query translate",
        "archive show",
        "digest",
        "job list",
        "job show",
        "job wait",
        "read",
        "query",
        "bytes show",
        "txn list",
        "txn show",
        "group list",
        "group show",
        "watch",
        "watermark list",
        "watermark show",
        "pipeline list",
        "modules list",
        "modules show",
        "queries list",
        "queries logs",
        "queries prepare",
        "queries results",
        "queries show",
        "queries state",
        "queries templates",
        "queries top",
        "queries validate",
        "queries versions",
        "pipeline show",
        "key show",
        "token list",
        "role list",
        "space",
        "metrics",
        "version",
    }
)

# Each destructive verb, as it would remove something of the store below.
ASKED: dict[str, tuple[str, ...]] = {
    "scope delete": ("iot", "--recursive"),
    "stream truncate": ("iot/sensors", "--at", "tail"),
    "stream delete": ("iot/sensors",),
    "stream retain": ("iot/sensors", "--for", "0s", "--now"),
    "replace": ("iot/sensors", "--between", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "--with-nothing"),
    "stitch": ("iot/sensors", "iot/raw2", "--into", "iot/all", "--drop-sources"),
    "txn abort": ("ID",),  # the id of the open transaction
    "group reset": ("iot/dash", "--to", "tail"),
    "group delete": ("iot/dash",),
    "pipeline run": ("pipeline.sql", "--from", "head", "--replace"),
    "pipeline reset": ("warm",),
    "pipeline delete": ("warm",),
    "queries deploy": ("hot", "pipeline.sql", "--from", "head", "--replace"),
    "queries upgrade": ("hot", "pipeline.sql", "--restart-from", "head", "--replace"),
    "queries rollback": ("hot", "--from", "head", "--replace"),
    "queries delete": ("hot",),
    "queries remove-template": ("mine",),
    "modules remove": ("heat",),
    "rebuild": ("--force",),
}


def documented(heading: str) -> list[str]:
    """The verbs in the table of the documentation whose second column has this heading."""
    table = COMMAND_LINE.read_text().partition(f"| Verb | {heading} |\n")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([a-z -]+)` \| .+ \|$", table, re.MULTILINE)


def test_the_documentation_says_of_every_verb_whether_it_asks() -> None:
    destructive, safe = documented("What can't be restored"), documented("Why it doesn't ask")
    verbs = {" ".join(path) for path in VERBS}
    assert verbs == {*destructive, *safe, *READS}
    assert len(destructive) + len(safe) + len(READS) == len(verbs), "each stands in one table"
    for path, command in VERBS.items():
        options = {name for parameter in command.params for name in parameter.opts}
        assert ("--yes" in options) == (" ".join(path) in destructive), path
    assert ASKED.keys() == set(destructive)


@pytest.fixture
def full(sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A store that has something of all that can be removed, and pipeline.sql in the current folder."""
    with ab.connect(sensors.store, create=True) as store:
        store.streams.copy("iot/sensors", "iot/raw2")
        store.groups.open("iot/dash", streams=["iot/sensors"])
        open_one = store.transaction()
        open_one.writer("iot/raw").write("pending")
        open_one.flush()
        holder, now = pipeline_row.this_process("t"), store.runtime.clock.now()
        output = PipelineOutput("iot/raw2", None, ("iot/sensors",), 1, "f")
        pipeline_row.claim(store.catalog, "warm", SQL, [output], holder, now=now)
        pipeline_row.finish(store.catalog, "warm", holder, now=now)
        store.queries.deploy("hot", SQL)
        store.modules.add("heat", heat(), signatures=[SCORE])
        store.templates.save("mine", SQL)
        store.export_manifest()
    monkeypatch.chdir(tmp_path)
    Path("pipeline.sql").write_text(SQL)
    return sensors


def state(line: Line) -> dict[str, Any]:
    """What the store holds of all that is asked about."""
    with ab.connect(line.store, create=True) as store:
        return {
            "events": {
                str(info.name): store.cuts.distance(info.name).events
                for info in map(store.streams.get, ("iot/sensors", "iot/raw", "iot/raw2"))
            },
            "scopes": [scope.name for scope in store.scopes.list()],
            "transactions": [(each.id, each.state) for each in store.transactions.list(ended=True)],
            "groups": {name: store.groups.open(name).unread().events for name in store.groups.list()},
            "retention": store.policies.retention("iot/sensors"),
            "queries": store.queries.list(),
            "modules": store.modules.list(),
            "templates": store.templates.list(),
            "pipelines": line("pipeline", "list", "--json").json,
            "catalog": (line.store / "catalog.db").stat().st_ino,
        }


@pytest.mark.parametrize("verb", ASKED)
def test_without_a_terminal_nothing_is_removed_unasked(full: Line, verb: str) -> None:
    before = state(full)
    ((transaction, _),) = before["transactions"]
    told = full.refused(*verb.split(), *(transaction if each == "ID" else each for each in ASKED[verb]))
    assert "--yes" in told and "?" in told
    assert state(full) == before


def test_a_piped_yes_is_no_answer(full: Line) -> None:
    assert "--yes" in full.refused("stream", "delete", "iot/sensors", stdin="y\n" * 3)
    assert "--yes" in full.refused("rebuild", "--discard-newer", stdin="y\n")


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal: the person's end and the program's."""
    person, program = pty.openpty()
    try:
        yield person, program
    finally:
        os.close(person)
        os.close(program)


def run_on_terminal(line: Line, answer: bytes, **options: Any) -> tuple[int, bytes, bytes]:
    """Delete iot/sensors with stdout into a pipe and stdin on a terminal; exit code, what went down the pipe and what the
    person saw."""
    with terminal() as (person, program):
        streams: dict[str, Any] = {name: program if value == "terminal" else value for name, value in options.items()}
        process: subprocess.Popen[bytes] = subprocess.Popen(
            line.command("stream", "delete", "iot/sensors"),
            stdin=program,
            stdout=subprocess.PIPE,
            env=environment(),
            **streams,
        )
        with process:
            seen = b""
            while b"[y/N]" not in seen:
                piece = os.read(person, 4096)
                assert piece, seen
                seen += piece
            os.write(person, answer)
            out, _ = process.communicate(timeout=PATIENCE_S)
            code = process.returncode
    return code, out, seen


@pytest.mark.process
@pytest.mark.parametrize(("answer", "deleted"), [(b"y\n", True), (b"n\n", False), (b"\n", False), (b"\x04", False)])
def test_where_stdout_is_a_pipe_the_question_is_asked_on_stderr(sensors: Line, answer: bytes, deleted: bool) -> None:
    code, out, seen = run_on_terminal(sensors, answer, stderr="terminal")
    assert code == (0 if deleted else 1)
    assert out == b""
    assert b"Delete stream 'iot/sensors' with its 3 events?" in seen
    assert ("iot/sensors" in sensors("stream", "list").out) is not deleted


@pytest.mark.process
def test_where_both_are_pipes_the_question_is_asked_on_the_terminal_itself(sensors: Line) -> None:
    # A session of its own, whose terminal is stdin's.
    own = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    command = sensors.command
    sensors.command = lambda *told: [sys.executable, "-c", own, *command(*told)]  # type: ignore[method-assign]
    code, out, _ = run_on_terminal(sensors, b"y\n", stderr=subprocess.PIPE, start_new_session=True)
    assert (code, out) == (0, b"")
    assert "iot/sensors" not in sensors("stream", "list").out


@pytest.mark.process
def test_where_stdin_is_no_terminal_the_process_is_refused(sensors: Line) -> None:
    done = sensors.process("stream", "delete", "iot/sensors", stdin=b"y\n")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "iot/sensors" in sensors("stream", "list").out
