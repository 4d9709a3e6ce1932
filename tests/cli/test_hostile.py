"""Hostile files, names and options on the command line: each is one line and exit code 2, soon, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from anabranch import connect, limits
from tests.cli.kit import SCHEMA, Line, environment
from tests.waiting import PATIENCE_S
from tests.wheels import wheel

SQL = "CREATE STREAM iot.out AS SELECT device, celsius FROM STREAM iot.sensors"
WHEEL = "scoring-1.0-py3-none-any.whl"
MESSAGE_CHARS_MAX = 2_600
DEEP = 10_000
HUGE = 1 << 36  # of a file without blocks on the disk

Make = Callable[[Path], object]


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def _text(content: str, encoding: str = "utf-8") -> Make:
    return lambda path: path.write_bytes(content.encode(encoding))


UNREADABLE: Final[Mapping[str, Make]] = {
    "missing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a pipe to which nobody writes": os.mkfifo,
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "64 GiB": _sparse,
}
"""What no verb takes, whatever it expects in the file."""
NO_TEXT: Final[Mapping[str, Make]] = {
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "UTF-16": _text(SQL, "utf-16"),
    "Latin-1": _text(SQL + " -- °C", "latin-1"),
    "half a character": lambda path: path.write_bytes(SQL.encode() + b" -- \xc3"),
}
NO_SQL: Final[Mapping[str, Make]] = {
    "empty": _text(""),
    "space": _text(" \n\t" * DEEP),
    "a byte order mark alone": _text("\ufeff"),
    "brackets that are not closed": _text(f"{SQL} WHERE {'(' * DEEP}"),
    "a quote that is not closed": _text(f"{SQL} WHERE a = 'x"),
    "comments that are not closed": _text(SQL + "/* /" * 60_000),
    "a long number": _text(f"{SQL} WHERE celsius > {'9' * 5_000}"),
    "escapes of a terminal": _text("\x1b]0;title\x07\x1b[2J\u202e"),
    "5,000 statements": _text(";".join(f"CREATE STREAM o.s{n} AS SELECT a FROM STREAM s.t" for n in range(5_000))),
    "a statement of another kind": _text("DROP TABLE students; --"),
}
"""What no verb takes that parses the statements before it does anything."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPE_WAIT_S", 0.05)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Line:
    """A store with a stream and a query, which no test changes."""
    line = Line(tmp_path_factory.mktemp("store") / "river")
    line("scope", "create", "iot")
    line("stream", "create", "iot/sensors", "--schema", SCHEMA, "--key", "device", "--time", "at")
    with connect(line.store) as store:
        store.queries.deploy("good", SQL)
    return line


@pytest.fixture
def deployed(prepared: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """The same, in a folder with a file of statements and a wheel."""
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("good.sql").write_text(SQL)
    Path(WHEEL).write_bytes(wheel({"scoring.py": "def score(x): return x"}))
    return prepared


def state(line: Line) -> object:
    """All that the verbs of these tests could leave."""
    with connect(line.store) as store:
        queries = [(each.name, store.queries.versions(each.name), each.wanted) for each in store.queries.list()]
        saved = [each.name for each in store.templates.list() if each.saved_at is not None]
        return queries, saved, store.modules.list(), [each.name for each in store.streams.list(None)]


def refused(line: Line, *arguments: object, stdin: str | bytes = b"") -> str:
    before = state(line)
    message = line.refused(*arguments, stdin=stdin)
    assert state(line) == before, "something was left"
    assert len(message) < MESSAGE_CHARS_MAX, "the message repeats what was given"
    assert message.isprintable() and "Traceback" not in message
    return message


READERS: Final[Mapping[str, Sequence[str]]] = {
    "validate": ("queries", "validate", "F"),
    "deploy": ("queries", "deploy", "q", "F"),
    "deploy of a dialect": ("queries", "deploy", "q", "F", "--dialect", "trino"),
    "deploy again": ("queries", "deploy", "good", "F"),
    "upgrade": ("queries", "upgrade", "good", "F"),
    "plan": ("queries", "upgrade", "good", "F", "--plan"),
    "replay": ("queries", "upgrade", "good", "F", "--replay", "head", "--no-wait"),
    "pipeline": ("pipeline", "run", "F", "--once"),
    "pipeline of a dialect": ("pipeline", "run", "F", "--once", "--dialect", "trino"),
    "translate": ("query", "translate", "--file", "F", "--from", "flink"),
    "query": ("query", "--file", "F"),
    "query of a dialect": ("query", "--file", "F", "--dialect", "trino"),
}
LAX: Final[Mapping[str, Sequence[str]]] = {
    "template": ("queries", "save-template", "t", "F"),
    "sign": ("queries", "sign", "F", "--key", "alice.pem"),
}
"""These do not parse what they read."""
PLAIN: Final = ("deploy", "query")  # the others read their files in the same way
VERBS: Final = [verb if verb in PLAIN else pytest.param(verb, marks=pytest.mark.slow) for verb in READERS]
FILES: Final[Mapping[str, Sequence[str]]] = {
    "wheel": ("queries", "deploy", "q", "good.sql", "--wheel", WHEEL),
    "wheel of an upgrade": ("queries", "upgrade", "good", "good.sql", "--wheel", WHEEL),
    "module": ("queries", "deploy", "q", "good.sql", "--wasm", "heat.wasm"),
    "module as text": ("queries", "deploy", "q", "good.sql", "--wasm", "heat.wat"),
    "module of a store": ("modules", "add", "heat", "heat.wasm"),
    "resource": ("queries", "deploy", "q", "good.sql", "--resource", "model.json"),
    "signature": ("queries", "deploy", "q", "good.sql", "--signature", "good.sig"),
    "trusted key": ("queries", "trust", "alice.pub"),
    "keys": ("key", "new", "river.keys"),
    "configuration": ("serve", "--config", "server.toml"),
    "signing key": ("queries", "sign", "good.sql", "--key", "alice.pem"),
}
ENDINGS = (".whl", ".wasm", ".wat", ".json", ".sig", ".pub", ".pem", ".keys", ".toml")


@pytest.mark.parametrize("kind", [*UNREADABLE, *NO_TEXT])
@pytest.mark.parametrize("verb", [*VERBS, *LAX])
def test_a_file_that_is_no_text_is_refused(deployed: Line, verb: str, kind: str) -> None:
    {**UNREADABLE, **NO_TEXT}[kind](Path("hostile.sql"))
    arguments = [each if each != "F" else "hostile.sql" for each in {**READERS, **LAX}[verb]]
    message = refused(deployed, *arguments)
    assert "hostile.sql" in message and "can't be read" in message


@pytest.mark.parametrize("kind", NO_SQL)
@pytest.mark.parametrize("verb", VERBS)
def test_statements_that_are_none_are_refused(deployed: Line, verb: str, kind: str) -> None:
    NO_SQL[kind](Path("hostile.sql"))
    refused(deployed, *[each if each != "F" else "hostile.sql" for each in READERS[verb]])


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        (verb, kind)
        for verb in FILES
        for kind in UNREADABLE
        if verb != "keys" or kind not in ("missing", "a link to itself")  # it makes the file, in place of the link
    ],
)
def test_a_file_that_can_not_be_read_is_refused(deployed: Line, verb: str, kind: str) -> None:
    (name,) = (each for each in FILES[verb] if each.endswith(ENDINGS))
    Path(name).unlink(missing_ok=True)
    UNREADABLE[kind](Path(name))
    message = refused(deployed, *FILES[verb])
    assert "can't be read" in message or "all users may read" in message


@pytest.mark.parametrize("verb", [each for each in FILES if each not in ("resource",)])
def test_a_file_of_garbage_is_refused(deployed: Line, verb: str) -> None:
    (name,) = (each for each in FILES[verb] if each.endswith(ENDINGS))
    Path(name).unlink(missing_ok=True)
    Path(name).write_bytes(bytes(range(256)) * 40)
    Path(name).chmod(0o600)
    refused(deployed, *FILES[verb])


def test_a_module_that_is_nested_without_end_is_refused(deployed: Line) -> None:
    Path("deep.wat").write_text("(module (func " + "(block " * 100_000 + ")" * 100_000 + "))")
    refused(deployed, "modules", "add", "deep", "deep.wat")
    Path("deep.wat").write_text("(" * 1_000_000)
    refused(deployed, "queries", "deploy", "q", "good.sql", "--wasm", "deep.wat")


D = ("queries", "deploy", "q", "good.sql")
U = ("queries", "upgrade", "good", "good.sql")
OPTIONS: Final[Sequence[Sequence[str]]] = [
    *((*D, "--cpus", each) for each in ("nan", "inf", "-1", "1e400", "9" * 400, "many", "")),
    *((*D, "--memory", each) for each in ("-1", "9" * 400 + "GB", "NaN", "1e9", "١GB", "", "1 parsec")),
    *((*D, "--trigger", each) for each in ("-1s", "9" * 5_000 + "s", "nan", "1e9s", "soon", "", "0.0000001s")),
    *((*D, "--standby", each) for each in ("lukewarm", "", "x" * 50_000)),
    *((*D, "--group", each) for each in ("../../etc", "a b", "", "x" * 50_000, "\x1b[31m", "a\nb")),
    *((*D, "--from", each) for each in ("yesterday", "-" + "9" * 30 + "w", "0" * 50_000, "10000-01-01", "\u202e")),
    *((*D, "--by", each) for each in ("", "moon", "x" * 50_000)),
    *((*D, "--param", each) for each in ("", "=", "x", "x=1", "x" * 100_000, "=" + "x" * 100_000, "a\x1b=1")),
    (*D, *[word for n in range(1_001) for word in ("--param", f"p{n}=1")]),
    (*D, *[word for n in range(limits.DEPLOYMENT_FILES_MAX + 1) for word in ("--resource", f"r{n}.json")]),
    (*D, "--wheel", "good.sql"),
    (*D, "--resource", WHEEL),
    (*D, "--wheel", WHEEL, "--wheel", WHEEL),
    (*D, "--template", "rollup"),
    ("queries", "deploy", "q"),
    *(("queries", "deploy", "q", "--template", each) for each in ("../../etc/passwd", "", "x" * 100_000, "a\nb\x1b")),
    *(("queries", "deploy", each, "good.sql") for each in ("..", "", "a b", "x" * 50_000, "a\nb", "'; DROP TABLE x; --")),
    *(("queries", "save-template", each, "good.sql") for each in ("..", "", "x" * 50_000, "rollup", "a\x1b")),
    *(("queries", verb, each) for verb in ("show", "start", "stop", "versions", "logs") for each in ("", "x" * 50_000, "\x1b[2J")),
    (*U, "--param", "size=1"),
    (*U, "--trigger", "9" * 400 + "w"),
    (*U, "--restart-from", "9" * 400),
    (*U, "--replay", "9" * 400, "--no-wait"),
    (*U, "--replay", "head", "--replace"),
    (*U, "--drop"),
    *(("queries", "rollback", "good", each) for each in ("0", "-1", "9" * 400, "x")),
    *(("queries", "state", *each) for each in (("good",), ("good", "k", "--batch", "1"), ("nobody", "k"), ("good", "x" * 50_000))),
    ("queries", "state", "good", "--committed", "--limit", "0"),
    ("queries", "state", "good", "--committed", "--limit", "9" * 400),
    ("queries", "state", "good", "--committed", "--batch", "-1"),
    ("queries", "results", "good", "iot/none"),
    ("queries", "results", "good", "9" * 400),
    ("queries", "results", "nobody", "--limit", "-1"),
    ("query",),
    ("query", "SELECT 1", "--file", "good.sql"),
    *(("query", "SELECT 1", "--timeout", each) for each in ("0s", "-1s", "9" * 400 + "s", "nan")),
    *(("query", "SELECT 1", "--memory", each) for each in ("0", "1", "-1GB", "9" * 400)),
    ("query", "SELECT 1", "--dialect", "klingon"),
    ("query", f"SELECT {'(' * DEEP}1{')' * DEEP}"),
    ("query", f"SELECT {'-' * DEEP}"),
    ("query", f"SELECT {'[' * DEEP}"),
    ("query", f"SELECT {'9' * 5_000}"),
    ("query", "SELECT * FROM 'good.sql'"),
    ("query", "COPY (SELECT 1) TO 'new.csv'"),
    ("query", "SELECT '\x1b[2J' +"),
    ("query", "SELECT 1", "--output", "/none/of/this.csv"),
    ("query", "translate", "--from", "trino"),
    ("query", "translate", "SELECT 1", "--file", "good.sql", "--from", "trino"),
    ("query", "translate", "--file", "good.sql"),
    ("query", "translate", "--file", "good.sql", "--from", "x" * 50_000),
    ("query", "translate", "--file", "good.sql", "--from", "trino", "--to", "x" * 50_000),
    ("query", "translate", "--file", "good.sql", "--from", "trino", "--scope", "../x"),
    ("pipeline", "run", "good.sql", "--events-max", "0"),
    ("pipeline", "run", "good.sql", "--seconds", "-1"),
    ("pipeline", "run", "good.sql", "--name", "../x"),
    *(("stream", "create", "iot/new", "--schema", each) for each in (
        f"a: {'list<' * 5_000}int{'>' * 5_000}", f"a: {'struct<a: ' * 65}int{'>' * 65}", f"a: decimal({'9' * 5_000}, 1)",
        "a: list<", "x" * 100_000, "a: int" + " " * 100_000 + "!", ",".join(f"c{n}: int" for n in range(1_001)),
    )),
    ("queries", "serve", "--spares", "-1"),
    ("queries", "serve", "--lease", "9" * 400 + "s"),
    ("queries", "serve", "--lease", "0s"),
    ("queries", "serve", "--cpus", "nan"),
    ("queries", "serve", "--memory", "x"),
    ("queries", "serve", "--conf", "x"),
    ("queries", "serve", "--group", "../x"),
    ("queries", "top", "--once", "--seconds", "nan"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", OPTIONS, ids=lambda each: " ".join(each)[:60])
def test_absurd_options_are_refused(deployed: Line, arguments: Sequence[str]) -> None:
    refused(deployed, *arguments)
    assert not Path("new.csv").exists()


@pytest.mark.parametrize(
    "stdin", [b"", b"\xff\xfe", SQL.encode("utf-16"), b"x" * ((1 << 20) + 1), b"SELECT '", b"SELECT 'a\0b' +"]
)
def test_hostile_input_on_stdin_is_refused(deployed: Line, stdin: bytes) -> None:
    refused(deployed, "query", "-", stdin=stdin)
    refused(deployed, "query", "translate", "-", "--from", "trino", stdin=stdin)
    refused(deployed, "queries", "deploy", "q", "-", stdin=stdin)


def test_statements_come_from_stdin_and_with_a_byte_order_mark(
    sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sensors("queries", "deploy", "q", "-", stdin=SQL)
    Path("marked.sql").write_text("\ufeffSELECT 1 AS a")
    assert sensors("query", "--file", "marked.sql", "--json").rows == [{"a": 1}]
    Path("good.sql").write_bytes(SQL.replace(" AS ", " AS\n").encode())
    sensors("queries", "deploy", "lines", "good.sql")
    Path("good.sql").write_bytes(SQL.replace(" AS ", " AS\r\n").encode())
    sensors("queries", "deploy", "lines", "good.sql")  # it is the same text
    assert len(sensors("queries", "versions", "lines", "--json").json) == 1


# as processes of their own, with little memory


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


PROCESSES: Final[Mapping[str, Sequence[str | bytes]]] = {
    "a name that is no text": ("queries", "deploy", b"\xff\xfe", "good.sql"),
    "a file's name that is no text": ("queries", "deploy", "q", b"\xff.sql"),
    "a parameter that is no text": (*D, "--param", b"x=\xff\xed\xa0\x80"),
    "SQL that is no text": ("query", b"SELECT '\xff'"),
    "a device without end": ("queries", "deploy", "q", "/dev/zero"),
    "a query without end": ("query", "--file", "/dev/zero"),
    "a wheel without end": (*D, "--wheel", "endless-1.0-py3-none-any.whl"),
    "deep SQL": ("query", "--file", "deep.sql"),
    "deep SQL with files": ("query", "--allow-files", "--file", "deeper.sql"),
    "deep SQL of a dialect": ("query", "translate", "--from", "trino", "--file", "deep.sql"),
    "deep statements": ("queries", "deploy", "q", "deep.sql"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PROCESSES)
def test_a_process_with_little_memory_refuses_it(deployed: Line, what: str) -> None:
    Path("endless-1.0-py3-none-any.whl").symlink_to("/dev/zero")
    Path("deep.sql").write_text(f"SELECT {'(' * 60_000}1{')' * 60_000}")
    Path("deeper.sql").write_text(f"SELECT {'(' * 5_000_000}1{')' * 5_000_000}")
    before = state(deployed)
    done = subprocess.run(
        [*deployed.command(), *PROCESSES[what]],
        capture_output=True,
        env=environment(),
        preexec_fn=_limited,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b""), done
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("anabranch: ") and len(lines[0]) < MESSAGE_CHARS_MAX, done
    assert state(deployed) == before
