"""Arrow IPC input that claims much: it is refused before anything is decompressed, or read in bounded memory."""

from __future__ import annotations

import gzip
import io
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch import limits
from anabranch.core.ipc_bounds import open_bounded, open_bounded_pipe, slices
from tests.cli.kit import Line, environment
from tests.waiting import PATIENCE_S

ZSTD = b"\x28\xb5\x2f\xfd"  # how a frame begins

READ = """
import sys
from pathlib import Path
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.open import open_intake
from anabranch.cli.intake.source import IntakeSource
from anabranch.errors import InvalidArgument
from anabranch.model.schema import StreamSchema
def peak_kib():  # not `getrusage`, which begins with what the process had that started this one
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0])
with IntakeSource(Path(sys.argv[1])) as source:
    before = peak_kib()
    try:
        intake = open_intake(source, None, present=None)
        schema = StreamSchema.typed(intake.schema(), None, None)
        rows = sum(batch.rows.cast(schema.columns).num_rows for batch in intake.batches(TargetColumns(schema)))
        print("rows", rows)
    except InvalidArgument as exc:
        print("refused", exc)
    print((peak_kib() - before) >> 10)
"""


def stream_of(table: pa.Table, *, compression: str | None = None, file: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def forged(claim: int, *, file: bool = False) -> bytes:
    """A batch of some hundred bytes, one of whose buffers claims to decompress to `claim` bytes."""
    values = b"claimed!" * 512
    data = stream_of(pa.table({"a": pa.array([values], pa.binary())}), compression="zstd", file=file)
    size = len(values).to_bytes(8, "little") + ZSTD
    assert data.count(size) == 1
    return data.replace(size, claim.to_bytes(8, "little", signed=True) + ZSTD)


def read_apart(file: Path) -> tuple[str, int]:
    """What reading a file in a process of its own says, and by how many MiB its memory grows."""
    command = [sys.executable, "-c", READ, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    said, grown = done.stdout.strip().rsplit("\n", 1)
    return said, int(grown)


@pytest.mark.parametrize("file", [False, True])
def test_a_compressed_buffer_that_claims_gigabytes_is_refused_unread(tmp_path: Path, file: bool) -> None:
    (tmp_path / "x.arrow").write_bytes(forged(3 << 30, file=file))
    said, _ = read_apart(tmp_path / "x.arrow")
    assert "a message claims 3,221,22" in said


@pytest.mark.parametrize("file", [False, True])
def test_a_buffer_that_expands_a_thousandfold_is_refused_unread(tmp_path: Path, file: bool) -> None:
    size = 1_100 << 20
    buffers = [
        None,
        pa.py_buffer(struct.pack("<ii", 0, size)),
        pa.py_buffer(bytes(size)),
    ]  # not copied, so never touched
    zeros = pa.Array.from_buffers(pa.binary(), 1, buffers)
    data = stream_of(pa.table({"a": zeros}), compression="zstd", file=file)
    del zeros, buffers
    assert len(data) < 1 << 20
    (tmp_path / "x.arrow").write_bytes(data)
    said, grown_mib = read_apart(tmp_path / "x.arrow")
    assert "a message claims 1,153,433," in said
    assert grown_mib < 500  # of 1,100 MiB


@pytest.mark.parametrize("unit", ["dictionary", "view"])
def test_one_long_value_that_is_repeated_is_read_in_bounded_memory(tmp_path: Path, unit: str) -> None:
    value = "x" * (1 << 20)
    if unit == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), pa.array([value]))
    else:
        views = struct.pack("<i4sii", len(value), b"xxxx", 0, 0) * 5_000
        column = pa.Array.from_buffers(
            pa.string_view(), 5_000, [None, pa.py_buffer(views), pa.py_buffer(value.encode())]
        )
    (tmp_path / "x.arrow").write_bytes(stream_of(pa.table({"a": column})))
    said, grown_mib = read_apart(tmp_path / "x.arrow")
    assert said == "rows 5000"
    assert grown_mib < 1_500  # of 5,000 MiB


def test_a_message_unpacked_from_a_pipe_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ARROW_MESSAGE_BYTES_MAX", 10 << 20)
    with gzip.open(tmp_path / "x.arrow.gz", "wb", compresslevel=1) as packed:
        packed.write(stream_of(pa.table({"a": pa.array([bytes(11 << 20)], pa.binary())})))
    with gzip.open(tmp_path / "x.arrow.gz") as packed, pytest.raises((ValueError, pa.ArrowException), match="claims"):
        list(open_bounded_pipe(packed.read))


def test_dictionaries_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ARROW_MESSAGE_BYTES_MAX", 20_000)
    column = pa.array(["y" * 9_000]).dictionary_encode()
    for file in (False, True):
        one = open_bounded(pa.py_buffer(stream_of(pa.table({"a": column}), file=file)))
        assert pa.Table.from_batches(list(one)).num_rows == 1
        with pytest.raises((ValueError, pa.ArrowException), match="claims 27,"):
            list(open_bounded(pa.py_buffer(stream_of(pa.table(dict.fromkeys("abc", column)), file=file))))


def test_rows_without_values_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ARROW_MESSAGE_ROWS_MAX", 1_000)
    with pytest.raises((ValueError, pa.ArrowException), match="claims 1,001 rows"):
        list(open_bounded(pa.py_buffer(stream_of(pa.table({"a": pa.nulls(1_001)})))))


def test_nested_values_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array(["z" * 100]))
    batch = pa.record_batch({"a": pa.ListArray.from_arrays(pa.array([0, 100], pa.int32()), inner)})
    assert [each.num_rows for each in slices(batch)] == [1]
    monkeypatch.setattr(limits, "PARQUET_NESTED_BYTES_MAX", 9_999)
    with pytest.raises(ValueError, match="claims 10,000 bytes"):
        list(slices(batch))


def test_offsets_that_lead_out_of_the_values_are_refused() -> None:
    data = bytearray(stream_of(pa.table({"a": ["abcdefgh", "ijklmnop"]})))
    at = data.index((8).to_bytes(4, "little") + (16).to_bytes(4, "little"))
    data[at + 4 : at + 8] = (1 << 30).to_bytes(4, "little")
    with pytest.raises((ValueError, pa.ArrowException)):
        list(open_bounded(pa.py_buffer(bytes(data))))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_is_read_is_the_same(compression: str | None) -> None:
    table = pa.table(
        {
            "n": range(5_000),
            "text": pa.array([f"{i}" * 5 if i % 3 else None for i in range(5_000)]),
            "words": pa.array([f"word-{i % 7}" for i in range(5_000)]).dictionary_encode(),
            "view": pa.array([f"a longer text of number {i}" for i in range(5_000)], pa.string_view()),
            "list": [[i, None] for i in range(5_000)],
        }
    )
    for file in (False, True):
        data = stream_of(table, compression=compression, file=file)
        assert pa.Table.from_batches(list(open_bounded(pa.py_buffer(data)))).equals(table)
    pipe = io.BytesIO(stream_of(table, compression=compression))
    assert pa.Table.from_batches(list(open_bounded_pipe(pipe.read))).equals(table)


def test_bombs_at_the_command_line_are_one_error(line: Line, tmp_path: Path) -> None:
    line("scope", "create", "s")
    for file in (False, True):
        (tmp_path / "x.arrow").write_bytes(forged(3 << 30, file=file))
        assert "a message claims" in line.refused("write", "s/a", tmp_path / "x.arrow", "--create")
    (tmp_path / "x.arrow").touch()
    assert "can't be read" in line.refused("write", "s/a", tmp_path / "x.arrow", "--create")


def test_a_footer_of_parquet_that_claims_much_is_refused_at_the_command_line(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PARQUET_FOOTER_BYTES_MAX", 10)
    line("scope", "create", "s")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    assert "footer claims" in line.refused("write", "s/a", tmp_path / "x.parquet", "--create")
