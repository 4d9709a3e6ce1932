"""`anabranch bytes`: files into streams and back."""

from __future__ import annotations

from pathlib import Path

from tests.cli.kit import Line
from tests.waiting import PATIENCE_S, until


def test_a_file_goes_in_and_comes_out_again(line: Line, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5_000
    (tmp_path / "in").write_bytes(data)
    put = line("bytes", "put", "iot/file", tmp_path / "in", "--json").json
    assert put == {"stream": "iot/file", "bytes": len(data), "start": 0, "tail": len(data)}
    line("bytes", "get", "iot/file", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data
    assert "File exists" in line.refused("bytes", "get", "iot/file", tmp_path / "out")
    assert "exists" in line.refused("bytes", "put", "iot/file", tmp_path / "in", "--new")


def test_a_pipe_is_appended_and_a_part_is_read(line: Line) -> None:
    line("bytes", "put", "iot/file", stdin=b"01234")
    assert "ends at 10" in line("bytes", "put", "iot/file", "-", stdin=b"56789").err
    assert line("bytes", "get", "iot/file").out == "0123456789"
    assert line("bytes", "get", "iot/file", "--from", 3, "--limit", 4).out == "3456"
    assert line("bytes", "show", "iot/file", "--json").json == {
        "stream": "iot/file",
        "head": 0,
        "tail": 10,
        "bytes": 10,
    }
    assert line("bytes", "show", "iot/file").out == "iot/file: 10 bytes, from 0 to 10\n"


def test_what_comes_through_a_pipe_is_there_as_soon_as_the_pipe_pauses(line: Line) -> None:
    line("bytes", "put", "iot/file")
    with line.start("bytes", "put", "iot/file") as process:
        assert process.stdin is not None
        for seen in (b"one", b"onetwo"):
            process.stdin.write(seen[-3:])
            process.stdin.flush()
            until(lambda: line("bytes", "get", "iot/file").out == seen.decode())  # noqa: B023 - called at once
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_a_process_reads_bytes_as_they_are(line: Line) -> None:
    data = bytes(range(256)) * 10
    assert line.process("bytes", "put", "iot/file", stdin=data).code == 0
    with line.start("bytes", "get", "iot/file") as process:
        assert process.stdout is not None
        assert process.stdout.read() == data


def test_a_stream_of_events_is_no_file(line: Line) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/raw")
    assert line("bytes", "get", "iot/raw").out == ""
    line("write", "iot/raw", stdin="an event\n")
    assert "'iot/raw' is not a byte stream" in line.refused("bytes", "get", "iot/raw")
    assert "'iot/raw' is not a byte stream" in line.refused("bytes", "put", "iot/raw", stdin=b"x")
