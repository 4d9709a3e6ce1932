"""Small files that claim much: they are read in bounded memory, or refused before anything is decoded."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch import limits
from anabranch.errors import CorruptBlob
from anabranch.log.parquet import bounds as parquet_bounds
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.parquet.thrift import BINARY, I32, STRUCT, write_struct
from tests.cli.kit import Line, environment
from tests.waiting import PATIENCE_S

KEY = "attached/0000000000000001-00000000000000000000000a/x.parquet"

READ = """
import sys
import anabranch as ab
def peak_kib():  # not `getrusage`, which begins with what the process had that started this one
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0])
with ab.connect(sys.argv[1], create=True) as store:
    store.scopes.create("s")
    store.archives.attach(sys.argv[2], "s/bomb")
    before = peak_kib()
    rows = sum(batch.num_rows for batch in store.reader("s/bomb").batches())
    print(rows, peak_kib() - before >> 10)
"""


def repeated(folder: Path, rows: int) -> Path:
    """One value of 1 MiB that a dictionary repeats: some hundred bytes."""
    folder.mkdir()
    values = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(
        pa.table({"k": values}),
        folder / "x.parquet",
        compression="zstd",
        row_group_size=rows,
        store_schema=False,
        dictionary_pagesize_limit=4 << 20,
    )
    return folder


def test_a_dictionary_that_stands_for_gigabytes_is_read_in_bounded_memory(tmp_path: Path) -> None:
    place = repeated(tmp_path / "bomb", 5_000)
    assert (place / "x.parquet").stat().st_size < 1_000
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "river"), str(place)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=True,
    )
    rows, grown_mib = map(int, done.stdout.split())
    assert rows == 5_000
    assert grown_mib < 1_500  # of 5,000 MiB


@pytest.mark.parametrize("use_dictionary", [True, False, ["pure"]])
@pytest.mark.parametrize("encoding", [None, "DELTA_BYTE_ARRAY"])
def test_what_is_decoded_in_small_pieces_is_the_same(
    monkeypatch: pytest.MonkeyPatch, use_dictionary: bool | list[str], encoding: str | None
) -> None:
    monkeypatch.setattr(limits, "PARQUET_DECODED_BYTES_MAX", 4_000)
    columns = {
        "pure": [f"value-{i % 7}-{'y' * (i % 90)}" if i % 5 else None for i in range(1_000)],
        "mixed": [f"{i}" * 9 for i in range(1_000)],
        "n": list(range(1_000)),
    }
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    encodings = {"mixed": encoding} if encoding and use_dictionary != True else None  # noqa: E712 - a list too
    pq.write_table(
        table,
        sink,
        row_group_size=300,
        use_dictionary=use_dictionary,
        dictionary_pagesize_limit=2_000,
        column_encoding=encodings,
    )
    reader = ParquetReader(KEY, sink.getvalue())
    batches = [batch for batch, _ in reader.read(10, 900, table.schema, appended=1)]  # type: ignore[arg-type]
    assert pa.Table.from_batches(batches).equals(table.slice(10, 900))
    assert not use_dictionary or all(batch.nbytes < 40_000 for batch in batches)


def forged(uncompressed: int, values: int) -> pa.Buffer:
    """A file whose only page claims what is said."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": ["x" * 50]}), sink, use_dictionary=False, compression="zstd", write_statistics=False)
    data = sink.getvalue().to_pybytes()
    at = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0).data_page_offset
    from anabranch.log.parquet.thrift import read_struct

    header, end = read_struct(data, at)
    header[2] = (I32, uncompressed)
    header[5][1][1] = (I32, values)
    text = write_struct(header)
    header[5][1].pop(5, None)
    room = end - at
    # As long as the header that it stands for: an unknown field fills the gap, or what may be left out makes room.
    text = write_struct(header)
    assert len(text) <= room + 8
    if len(text) < room:
        header[9] = (BINARY, b"x" * (room - len(text) - 2))
        text = write_struct(header)
    assert header[5][0] == STRUCT
    return pa.py_buffer(data[:at] + text + data[end:])


@pytest.mark.parametrize(
    ("uncompressed", "values", "why"), [(2_000_000_000, 1, "claims 2,000,000,000 bytes"), (-5, 1, "claims -5 bytes")]
)
def test_a_page_that_claims_too_much_is_refused_unread(uncompressed: int, values: int, why: str) -> None:
    data = forged(uncompressed, values)
    try:
        reader = ParquetReader(KEY, data)
    except CorruptBlob:
        pytest.fail("the footer is as it was")
    with pytest.raises(CorruptBlob, match=why):
        list(reader.read(0, 1, reader.schema, appended=1))  # type: ignore[arg-type]


def test_a_footer_that_claims_too_much_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARQUET_FOOTER_BYTES_MAX", 10)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(CorruptBlob, match="footer claims"):
        ParquetReader(KEY, sink.getvalue())


def test_nested_values_have_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [[1] * 10_000]}), sink)
    reader = ParquetReader(KEY, sink.getvalue())
    batches = reader.read(0, 1, reader.schema, appended=1)  # type: ignore[arg-type]
    assert [batch.num_rows for batch, _ in batches] == [1]
    monkeypatch.setattr(limits, "PARQUET_NESTED_BYTES_MAX", 1_000)
    reader = ParquetReader(KEY, sink.getvalue())
    with pytest.raises(CorruptBlob, match="claims 10,000 values"):
        list(reader.read(0, 1, reader.schema, appended=1))  # type: ignore[arg-type]


def test_ordinary_files_are_decoded_at_full_width() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{i}": [f"word-{j % 500}" for j in range(9_000)] for i in range(8)}), sink)
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    bounds = parquet_bounds.DecodingBounds(KEY, sink.getvalue(), file.metadata, lambda columns: file)
    assert bounds.decoding([0], file.schema_arrow.names, limits.READ_ROWS_MAX).rows == limits.READ_ROWS_MAX


# what is written from the command line


@pytest.mark.slow
def test_json_that_is_nested_without_end_is_refused(line: Line, tmp_path: Path) -> None:
    line("scope", "create", "s")
    file = tmp_path / "deep.jsonl"
    file.write_bytes(b'{"n": 1}\n{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    done = line.process("write", "s/new", file, "--create")
    assert done.code == 2, done
    assert "line 2" in done.err
    assert "nested" in done.err
    file.write_bytes(b'{"n": "' + b"[" * 1_000 + b'"}\n')  # brackets in a text nest nothing
    assert line.process("write", "s/new", file, "--create").code == 0


def test_a_damaged_gzip_file_is_one_error(line: Line, tmp_path: Path) -> None:
    line("scope", "create", "s")
    line("stream", "create", "s/a")
    whole = bytearray(gzip.compress(b"line\n" * 10_000))
    whole[12:40] = bytes(28)
    (tmp_path / "x.txt.gz").write_bytes(whole)
    assert "can't be read" in line.refused("write", "s/a", "--create", tmp_path / "x.txt.gz")


def test_parquet_from_the_command_line_is_bounded_too(line: Line, tmp_path: Path) -> None:
    line("scope", "create", "s")
    (tmp_path / "x.parquet").write_bytes(forged(2_000_000_000, 1))
    assert "claims 2,000,000,000 bytes" in line.refused("write", "s/a", tmp_path / "x.parquet", "--create")
    (tmp_path / "y.parquet").touch()
    assert "can't be read" in line.refused("write", "s/a", tmp_path / "y.parquet", "--create")
