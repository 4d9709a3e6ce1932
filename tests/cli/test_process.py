"""The command line as real processes: pipes, signals, closed pipes, start-up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.kit import Line, environment
from tests.parameters import rest_is_slow
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process


def until_there(line: Line, stream: str, events: int) -> list[dict[str, object]]:
    """The stream's events, once there are so many; read by another process than the writer's."""

    def are_there() -> bool:
        shown = line("stream", "list", "--json").json
        return sum(each["events"] for each in shown if each["name"] == stream) >= events

    until(are_there)
    return line("read", stream).rows


def test_a_pipe_is_durable_while_it_pauses(sensors: Line) -> None:
    with sensors.start("write", "iot/raw", "--create", "-") as process:
        assert process.stdin is not None
        for count in (1, 2, 3):
            process.stdin.write(b"line %d\nhalf" % count)
            process.stdin.flush()
            rows = until_there(sensors, "iot/raw", count)
            assert len(rows) == count
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    payloads = [row["payload"] for row in sensors("read", "iot/raw").rows]
    assert payloads == ["line 1", "halfline 2", "halfline 3", "half"]


def test_ctrl_c_ends_a_write_quietly_and_keeps_what_came(sensors: Line) -> None:
    with sensors.start("write", "iot/raw", "--create", "-") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        until_there(sensors, "iot/raw", 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert len(sensors("read", "iot/raw").rows) == 2
    assert sensors("check").code == 0


@pytest.mark.parametrize(("number", "code"), rest_is_slow([(signal.SIGINT, 130), (signal.SIGTERM, 143)]))
def test_a_signal_ends_a_following_reader_quietly(sensors: Line, number: int, code: int) -> None:
    with sensors.start("read", "iot/sensors", "--follow") as process:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline()) for _ in range(3)]
        sensors("write", "iot/sensors", "--create", stdin='{"device":"new"}\n')
        assert json.loads(process.stdout.readline())["device"] == "new"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (code, b"", b"")
    assert [row["device"] for row in first] == ["a", "b", "a"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_ends_a_query_and_a_loop(sensors: Line) -> None:
    slow = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range * b.range % 7 = 3"
    for verb in (("query", slow), ("compact", "--every", "3600")):
        with sensors.start(*verb) as process:
            until(lambda process=process: has_opened(process, sensors.store))  # type: ignore[misc]
            time.sleep(0.5)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, err
        assert b"Traceback" not in err


@pytest.mark.parametrize(("number", "code"), rest_is_slow([(signal.SIGINT, 130), (signal.SIGTERM, 143)]))
def test_a_signal_while_the_query_engine_is_loaded_is_no_missing_package(
    sensors: Line, tmp_path: Path, number: int, code: int
) -> None:
    # DuckDB's extension module turns what a signal's handler raises into an ImportError, or ends the process.
    (tmp_path / "duckdb.py").write_text(
        f"import os\ntry:\n    os.kill(os.getpid(), {number:d})\n"
        "except BaseException as exc:\n    raise ImportError('Encountered an error') from exc\n"
        "Error = Exception\n"
    )
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    for verb in (("query", "SELECT 1"), ("copy", "iot/sensors", "iot/some", "--where", "device = 'a'")):
        done = sensors.process(*verb, env=env)
        assert (done.code, done.out, done.err) == (code, "", ""), verb


def has_opened(process: subprocess.Popen[bytes], store: Path) -> bool:
    """True once the process has its store open: any earlier, the interpreter itself may still be on its way."""
    for file in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if file.readlink() == (store / "catalog.db").resolve():
                return True
    return False


@pytest.mark.parametrize("form", rest_is_slow(["jsonl", "table", "arrow", "csv"], plain=2))
def test_a_closed_pipe_ends_a_read_silently(sensors: Line, form: str) -> None:
    sensors("write", "iot/raw", "--create", "--format", "lines", stdin="x" * 99 + "\n" + "y" * 99 + "\n" * 20_000)
    with sensors.start("read", "iot/raw", "--format", form) as process:
        assert process.stdout is not None
        assert process.stdout.read(100)
        process.stdout.close()
        assert process.stderr is not None
        assert (process.wait(PATIENCE_S), process.stderr.read()) == (0, b"")


def test_the_shell_sees_data_and_remarks_apart(sensors: Line) -> None:
    done = sensors.process("write", "iot/sensors", "--create", "--json", stdin=b'{"device":"x"}\n')
    assert done.json["events"] == 1
    assert done.err == ""
    done = sensors.process("write", "iot/sensors", "--create", stdin=b'{"device":"x"}\n{"nope":1}\n')
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("anabranch: stdin, line 2: unknown column 'nope'")
    assert done.err.count("\n") == 1


def test_a_query_writes_nothing_but_its_rows(sensors: Line) -> None:
    done = sensors.process("query", "SELECT count(*) AS n FROM iot.sensors")
    assert (done.code, list(done.json), done.err) == (0, ["n"], "")


def test_two_writers_and_a_reader_share_the_folder(sensors: Line) -> None:
    writers = [sensors.start("write", "iot/raw", "--create", "--format", "lines") for _ in range(2)]
    with sensors.start("read", "iot/raw", "--follow", "--limit", "4000") as reader:
        for number, writer in enumerate(writers):
            assert writer.stdin is not None
            writer.stdin.write(b"".join(b"%d-%d\n" % (number, n) for n in range(2_000)))
            writer.stdin.close()
        assert [writer.wait(PATIENCE_S) for writer in writers] == [0, 0]
        assert reader.stdout is not None
        seen = [json.loads(text)["payload"] for text in reader.stdout]
        assert reader.wait(PATIENCE_S) == 0
    for each in writers:
        assert each.stderr is not None
        assert b"2,000 events written" in each.stderr.read()
    for number in range(2):
        assert [each for each in seen if each.startswith(f"{number}-")] == [f"{number}-{n}" for n in range(2_000)]


def test_without_typer_it_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('No module named typer', name='typer')")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "version"], env=environment(PYTHONPATH=path), capture_output=True
    )
    assert done.returncode == 2
    assert done.stderr.decode().strip().endswith("pip install 'anabranch[cli]'")
    assert done.stderr.count(b"\n") == 1


def test_a_verb_that_shows_columns_loads_arrow_and_nothing_heavier(sensors: Line) -> None:
    """What verbs load that show none is in test_help.py."""
    command = sensors.command("stream", "show", "iot/sensors")
    command[1:1] = ["-X", "importtime"]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0
    loaded = {text.rpartition(b"|")[2].strip().decode() for text in done.stderr.splitlines()}
    heavy = {
        "duckdb",
        "pandas",
        "pydantic",
        "polars",
        "pyspark",
        "pyarrow.parquet",
        "pyarrow.dataset",
        "anabranch.store.facade",
        "obstore",
    }
    assert not loaded & heavy
