"""What others wrote reaches the terminal without its control characters, by every verb; programs get it as it is."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.cli.output import iso_time
from anabranch.core.terminal import terminal_json, terminal_text
from tests.cli.kit import Line, environment
from tests.waiting import PATIENCE_S

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\r"
RAW = ("\x1b]0", "\x07", "\x9b", "\u202e", "\x1b[2J")


@settings(deadline=None)
@given(st.text())
def test_safe_text_moves_nothing(text: str) -> None:
    safe = terminal_text(text)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in safe)
    assert not any(0x202A <= ord(char) <= 0x202E or 0x2066 <= ord(char) <= 0x2069 for char in safe)
    assert terminal_text(safe) == safe


@settings(deadline=None)
@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_safe_json_keeps_its_value(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    safe = terminal_json(text)
    assert json.loads(safe) == value
    assert terminal_text(safe, lines=True) == safe


def test_plain_text_stays() -> None:
    for text in ("Grüße, 世界 👨‍👩‍👧", "a b", ""):
        assert terminal_text(text) == text
    assert terminal_text("a\nb\tc", lines=True) == "a\nb\tc"
    assert terminal_text("a\nb") == "a\\nb"


@pytest.fixture
def evil(line: Line) -> Line:
    """A store in which all that people may choose holds control characters."""
    with ab.connect(line.store, create=True) as store:
        store.scopes.create("s", tags={EVIL: EVIL})
        store.streams.create("s/a", tags={EVIL: EVIL})
        store.streams.create("s/b")
        with store.writer("s/a", writer_id=EVIL) as writer:
            writer.write(EVIL.encode(), key=EVIL).result()
            writer.note_time(1)
    return line


def on_terminal(line: Line, *arguments: object) -> str:
    """All that a verb prints where both of its outputs are a terminal."""
    main, other = pty.openpty()
    parts: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                data = os.read(main, 65_536)
            except OSError:  # nobody has the other end any more
                return
            if not data:
                return
            parts.append(data)

    with line.start(*arguments, stdout=other, stderr=other) as process:
        os.close(other)
        reading = threading.Thread(target=drain)
        reading.start()
        process.wait(PATIENCE_S)
        reading.join(PATIENCE_S)
    os.close(main)
    # A terminal's own line ends, and our bold.
    return (
        b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n").replace("\x1b[1m", "").replace("\x1b[0m", "")
    )


# One verb of each way in which text reaches the terminal: tables, rows, JSON, errors of ours and of the command line.
VERBS: tuple[tuple[str, ...], ...] = (
    ("stream", "show", "s/a"),
    ("read", "s/a", "--format", "jsonl"),
    ("watch", "--from", "head", "--no-follow"),
    ("query", f"SELECT {EVIL}"),
    ("query", "translate", "--from", "flink", f"SELECT '{EVIL}' AS x FROM s.a"),
    (EVIL,),
)
MORE_VERBS: tuple[tuple[str, ...], ...] = (
    ("scope", "list"),
    ("scope", "show", "s"),
    ("stream", "list", "s"),
    ("read", "s/a", "--format", "table"),
    ("read", "s/a", "--format", "csv"),
    ("read", "s/a", "--meta"),
    ("watch", "--from", "head", "--no-follow", "--json"),
    ("watermark", "show", "s/a"),
    ("stream", "show", "s/a", "--json"),
    ("stream", "show", f"s/{EVIL}"),
    ("stream", "list", EVIL),
    ("query", f"SELECT '{EVIL}' AS x"),
    ("read", "s/a", f"--{EVIL}"),
    ("--store", f"postgresql://{EVIL}@h/db", "scope", "list"),
    ("attach", EVIL, "s/x"),
    ("restore", EVIL),
)


@pytest.mark.process
@pytest.mark.parametrize("verbs", [VERBS, pytest.param(MORE_VERBS, marks=pytest.mark.slow)], ids=["some", "all others"])
def test_no_verb_lets_a_control_character_through_to_a_terminal(evil: Line, verbs: tuple[tuple[str, ...], ...]) -> None:
    for arguments in verbs:
        shown = on_terminal(evil, *arguments)
        assert shown.strip(), arguments
        for raw in RAW:
            assert raw not in shown, (arguments, shown)


def test_programs_get_events_as_they_are(evil: Line) -> None:
    (row,) = evil.process("read", "s/a", "--format", "jsonl").rows
    assert (row["key"], row["payload"]) == (EVIL, EVIL)
    (told,) = [line for line in evil.process("read", "s/a", "--format", "csv").out.split("\n") if "owned" in line][:1]
    assert "\x1b]0;owned\x07" in told
    assert evil("stream", "show", "s/a", "--json").json["tags"] == {EVIL: EVIL}
    for raw in RAW:
        assert raw not in evil("stream", "show", "s/a").out


@pytest.mark.slow
def test_a_secret_of_the_command_line_is_in_no_output(tmp_path: Path) -> None:
    secret = "hunter2SECRET"
    line = Line(tmp_path / "river")
    for arguments in (
        ("--store", f"postgresql://river:p@ss/{secret}@127.0.0.1:1/db", "scope", "list"),
        ("--store", f"postgresql+psycopg://river:{secret}@127.0.0.1:1/db", "scope", "list"),
        ("--debug", "--store", f"postgresql://river:%zz{secret}@h/db", "scope", "list"),
        ("--debug", "--blobs", f"s3://AK:{secret}@bucket/p", "scope", "create", "s"),
        ("--debug", "--blobs", f"s3://bucket/p?secret_access_key={secret}", "scope", "create", "s"),
        ("--keys", f"main {secret}", "scope", "create", "s"),
        ("restore", f"s3://AK:{secret}/x@bucket/p"),
        ("attach", f"http://u:{secret}@h/x.parquet", "s/x"),
    ):
        done = line.process(*arguments)
        assert done.code == 2, arguments
        assert done.err.startswith(("anabranch: ", "Traceback")), done
        assert secret not in done.out + done.err, arguments


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1 << 62, f"{1 << 62} µs"),
        (-(1 << 63), f"{-(1 << 63)} µs"),
    ],
)
def test_a_time_outside_the_calendar_is_shown_as_a_number(micros: int | None, shown: str | None) -> None:
    assert iso_time(micros) == shown


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_file_that_the_caller_has_closed_is_an_empty_one(sensors: Line, closed: str) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        line = shlex.join([sys.executable, "-m", "anabranch.cli.main", "--store", str(sensors.store), *words])
        command = ["sh", "-c", f"exec {line} {closed}"]
        return subprocess.run(command, env=environment(), capture_output=True, timeout=PATIENCE_S)

    assert run("stream", "list").returncode == 0
    assert run("write", "iot/sensors", "-").returncode == 0
    refused = run("stream", "delete", "iot/sensors")
    assert refused.returncode == 2 and b"Traceback" not in refused.stderr
