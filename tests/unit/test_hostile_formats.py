"""Stored bytes may have been changed by others: a changed byte gives an equal value or one of the store's errors, never
another exception, a crash, or unbounded memory."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.blobs import layout
from anabranch.blobs.memory import MemoryBlobs
from anabranch.catalog.state.transaction import PUBLISHED
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.core.group_format import GroupStateCodec
from anabranch.core.ipc_message import refuse_compressed
from anabranch.core.json_text import is_nested, parse_json
from anabranch.core.raw_event import RawEvent, payload_of
from anabranch.errors import AnabranchError, CorruptArchive, CorruptBlob, CorruptStore
from anabranch.log.parquet.builder import ParquetBuilder
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.parquet.replace_parts import with_parts
from anabranch.log.parquet.row_groups import GroupedFile, GroupsBuilder
from anabranch.log.parquet.thrift import DEPTH_MAX, read_struct, read_varint
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.manifest_rows import check_row
from anabranch.model.columns import RAW_COLUMNS, TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.producer import PlacedEvents, ProducerAnswer, ProducerAnswers
from anabranch.model.schema import StreamSchema
from anabranch.runtime.keys import parse_keys
from anabranch.shared_state.synchronizer import JsonCodec
from anabranch.spark.source.offsets import SourceOffset
from anabranch.transfer.archives.format import METADATA, metadata_digest
from anabranch.transfer.archives.metadata import read_metadata

# The same examples each time, so that a run of all tests fails for a change and not by chance: pyarrow itself ends the
# process on some footers. ANABRANCH_FUZZ=1 draws new ones.
FIXED = not os.environ.get("ANABRANCH_FUZZ")
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=FIXED)


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A few changes of bytes: other values, cuts, repeats and insertions."""
    edits = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["set", "cut", "insert", "swap"]), st.floats(0, 1), st.binary(min_size=1, max_size=9)
            ),
            min_size=1,
            max_size=4,
        )
    )

    def mutate(data: bytes) -> bytes:
        out = bytearray(data)
        for kind, where, value in edits:
            at = int(where * len(out))
            match kind:
                case "set":
                    out[at : at + len(value)] = value
                case "cut":
                    del out[at : at + value[0]]
                case "insert":
                    out[at:at] = value
                case _:
                    out[at : at + 8] = out[at : at + 8][::-1]
        return bytes(out)

    return mutate


def survives(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except AnabranchError as exc:
        return exc


def message(rows: int = 5) -> pa.Buffer:
    columns = [[f"key-{i}" for i in range(rows)], list(range(rows)), [b"p" * i for i in range(rows)]]
    return codec.encode(
        pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, RAW_COLUMNS, strict=True)], schema=RAW_COLUMNS)
    )


@FEW
@given(mutations())
def test_record_batches(mutate: Callable[[bytes], bytes]) -> None:
    for data in (message().to_pybytes(), bytes(RawEvent("k", Micros(3), b"payload").message)):
        changed = mutate(data)
        found = survives(lambda changed=changed: codec.decode(pa.py_buffer(changed), RAW_COLUMNS))  # type: ignore[misc]
        if isinstance(found, pa.RecordBatch):
            found.validate(full=True)
        survives(lambda changed=changed: payload_of(changed))  # type: ignore[misc]


def test_a_compressed_batch_is_refused_before_it_is_decoded() -> None:
    batch = pa.record_batch([pa.array([b"x" * 100_000])], names=["a"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue()))
    reader.read_next_message()
    compressed = reader.read_next_message().serialize()
    with pytest.raises(CorruptBlob, match="compressed"):
        codec.decode(compressed, batch.schema)
    refuse_compressed(batch.serialize())


@FEW
@given(mutations())
def test_blob_headers(mutate: Callable[[bytes], bytes]) -> None:
    framed = layout.frame({"commit": "c", "schemas": []}, [{"log": 1, "checksum": 2}], [message()])
    data = mutate(b"".join(bytes(memoryview(chunk)) for chunk in framed.chunks))
    for verify in (True, False):
        survives(lambda verify=verify: layout.read_index("k", pa.py_buffer(data), verify=verify))  # type: ignore[misc]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(-1) | st.just(1 << 70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def with_other(value: Any, path: st.DataObject, other: Any) -> Any:
    """A JSON value of which one part is replaced or left out."""
    if isinstance(value, dict) and value and path.draw(st.integers(0, 5)):
        name = path.draw(st.sampled_from(sorted(value)))
        if not path.draw(st.integers(0, 6)):
            return {key: each for key, each in value.items() if key != name}
        return {**value, name: with_other(value[name], path, other)}
    if isinstance(value, list) and value and path.draw(st.integers(0, 5)):
        at = path.draw(st.integers(0, len(value) - 1))
        return [*value[:at], with_other(value[at], path, other), *value[at + 1 :]]
    return other


@FEW
@given(st.data(), json_values)
def test_blob_indexes(data: st.DataObject, other: Any) -> None:
    index = {"commit": "c", "parts": [{"log": 1, "at": 0, "length": 8, "checksum": 2}], "schemas": ["00"]}
    changed = with_other(index, data, other)
    if isinstance(changed, dict):
        parts = changed.pop("parts", None)
        blob = layout.frame({**changed, "parts": parts}, [], [])
        whole = b"".join(bytes(memoryview(chunk)) for chunk in blob.chunks)
        whole = whole.replace(b',"parts":[]}', b"}", 1) if b',"parts":[]}' in whole else whole
        survives(lambda: layout.read_index("k", pa.py_buffer(whole), verify=False))


FOLDER = f"manifests/{1:016x}-{2:024x}/"


@FEW
@given(st.data(), json_values)
def test_manifest_indexes(data: st.DataObject, other: Any) -> None:
    blobs = MemoryBlobs()
    index = {"manifest": 1, "taken_at": 5, "horizon": 4, "pieces": [[f"{FOLDER}00000000.arrow", "scopes", 1, 10, 3]]}
    changed = with_other(index, data, other)
    if isinstance(changed, dict):
        blobs.put(f"{FOLDER}index", layout.frame(changed, [], []).chunks)
        found = survives(lambda: manifests.newest(blobs))
        assert isinstance(found, AnabranchError) or found[0] is None or not found[0].parts


ROW: dict[str, dict[str, Any]] = {
    "scopes": {"name": "s", "tags": "{}", "created_at": 1},
    "streams": {
        "id": 1,
        "scope": "s",
        "name": "a",
        "schema_version": 1,
        "tags": "{}",
        "created_at": 1,
        "sealed": False,
        "version": 1,
        "epoch": 0,
        "next_number": 1,
    },
    "schemas": {
        "stream": 1,
        "version": 1,
        "columns": StreamSchema(RAW_COLUMNS, "key", "time", True).to_bytes(),
        "key_column": "key",
        "time_column": "time",
        "raw": True,
    },
    "segments": {"stream": 1, "segment": 0, "low": "0" * 17, "high": "1" + "0" * 16, "retired": None, "head": 0},
    "logs": {
        "id": 1,
        "stream": 1,
        "length": 1,
        "sealed": False,
        "fence": 0,
        "low_water": 0,
        "size": 1,
        "appended_at": 1,
        "event_high": None,
    },
    "spans": {"stream": 1, "segment": 0, "offset": 0, "log": 1, "start": 0, "stop": None},
    "blobs": {
        "key": f"commits/{1:016x}-{2:024x}.arrow",
        "id": 1,
        "size": 9,
        "encoding": "arrow",
        "begun_at": 1,
        "dead_at": None,
        "checksum": None,
    },
    "extents": {
        "log": 1,
        "start": 0,
        "stop": 1,
        "blob": 1,
        "encoding": "arrow",
        "at": 0,
        "length": 9,
        "row": 0,
        "schema": 1,
        "checksum": -1,
        "appended_low": 1,
        "appended_high": 1,
        "event_low": None,
        "event_high": None,
        "event_reach": None,
        "size_end": 1,
        "data": None,
    },
    "writers": {"log": 1, "writer": "w", "next": 1, "fence": 0, "recent": bytes(40), "seen_at": 1},
    "producers": {
        "stream": 1,
        "producer": "p",
        "epoch": 0,
        "last": 4,
        "answers": ProducerAnswers.of([ProducerAnswer(0, 4, 4, (PlacedEvents(1, 2, 3, 4),))]).packed,
        "seen_at": 1,
    },
    "requests": {"id": "r", "operation": "o", "result": "null", "at": 1},
    "changes": {"sequence": 1, "stream": None, "at": 1, "kind": "k", "detail": "{}"},
    "aliases": {"name": "s/x", "stream": 1},
    "states": PUBLISHED.entry(*PUBLISHED.example)._asdict(),
}


@pytest.mark.parametrize("table", ROW)
@settings(max_examples=25, deadline=None, derandomize=FIXED)
@given(data=st.data())
def test_rows_of_manifests(table: str, data: st.DataObject) -> None:
    row = ROW[table]
    check_row("part", table, row)
    name = data.draw(st.sampled_from(sorted(row)))
    kinds = {int: st.integers(-(1 << 63), (1 << 63) - 1), str: st.text(max_size=9), bytes: st.binary(max_size=50)}
    kind = kinds.get(type(row[name]), st.none() | kinds[int])
    survives(lambda: check_row("part", table, {**row, name: data.draw(kind)}))


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("blobs", {"key": "../../etc/passwd"}),
        ("blobs", {"key": "/etc/passwd"}),
        ("blobs", {"begun_at": 7}),
        ("aliases", {"name": "../x"}),
        ("aliases", {"stream": -1}),
        ("states", {"value": "[" * 100_000}),
        ("states", {"value": "{}"}),
        ("states", {"value": '{"number":true}'}),
        ("states", {"value": '{"number":1,"more":1}'}),
        ("states", {"lookup": "x"}),
        ("states", {"kind": "unknown"}),
        ("scopes", {"tags": "[]"}),
        ("streams", {"name": "../x"}),
        ("extents", {"at": -5}),
        ("extents", {"blob": None}),
        ("writers", {"recent": b"x"}),
        ("producers", {"answers": b"x"}),
        ("producers", {"answers": bytes(16)}),
        ("producers", {"answers": struct.pack("<5q", 1, 0, 4, 4, -1)}),
        ("producers", {"answers": struct.pack("<5q", 1 << 60, 0, 4, 4, 0)}),
        ("producers", {"last": -2}),
        ("segments", {"low": "-1"}),
    ],
)
def test_a_row_that_no_store_has_written_is_refused(table: str, changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptBlob):
        check_row("part", table, {**ROW[table], **changes})


# Parquet


def parquet(rows: int = 40) -> bytes:
    columns = pa.schema([("key", pa.string()), ("n", pa.int64()), ("l", pa.list_(pa.int64()))])
    builder = ParquetBuilder(columns, group_rows=15)
    builder.begin(StreamId(1), LogId(2), 0, 1)
    made = [[f"k{i % 3}" for i in range(rows)], list(range(rows)), [[i] * (i % 3) for i in range(rows)]]
    batch = pa.record_batch([pa.array(c, f.type) for c, f in zip(made, columns, strict=True)], schema=columns)
    builder.write(batch, pa.array(range(rows), TIME_TYPE))
    builder.end()
    return bytes(builder.finish().data.to_pybytes())


PARQUET = parquet()
COLUMNS = ParquetReader("history/x", pa.py_buffer(PARQUET)).schema.remove(3)


@settings(max_examples=150, deadline=None, derandomize=FIXED)
@given(mutations(), st.booleans())
def test_parquet_files(mutate: Callable[[bytes], bytes], footer_alone: bool) -> None:
    length = int.from_bytes(PARQUET[-8:-4], "little") + 8
    if footer_alone:
        footer = mutate(PARQUET[-length:-8])
        data = PARQUET[:-length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    else:
        data = mutate(PARQUET)

    def read() -> int:
        reader = ParquetReader("history/x", pa.py_buffer(data))
        return sum(batch.num_rows for batch, _ in reader.read(0, min(reader.rows, 1_000), COLUMNS))

    def move() -> object:
        file = GroupedFile("history/x", pa.py_buffer(data))
        builder = GroupsBuilder(file)
        builder.add(file, range(len(file.groups)), {"log": 1})
        return builder.finish()

    survives(read)
    survives(move)
    survives(lambda: with_parts("history/x", pa.py_buffer(data), []))


@settings(max_examples=200, deadline=None, derandomize=FIXED)
@given(st.binary(max_size=200))
def test_thrift_reads_any_bytes_or_raises_one_of_two_errors(data: bytes) -> None:
    try:
        read_struct(data)
    except (IndexError, ValueError):
        return


def test_thrift_limits_depth_and_sizes() -> None:
    with pytest.raises(ValueError, match="nested"):
        read_struct(b"\x1c" * 100_000)  # structs in structs
    with pytest.raises(ValueError, match="nested"):
        read_struct(b"\x19" + b"\x19" * 100_000)  # lists in lists
    with pytest.raises(ValueError, match="64 bits"):
        read_varint(b"\xff" * 1_000_000, 0)
    with pytest.raises(ValueError, match="does not fit"):
        read_struct(b"\x19\xfc\xff\xff\xff\xff\x0f\x00")  # 4 billion structs
    with pytest.raises(ValueError, match="more than the remaining"):
        read_struct(b"\x18\x7fab\x00")
    assert DEPTH_MAX < 200


# JSON and texts


@FEW
@given(mutations())
def test_group_states_and_shared_values(mutate: Callable[[bytes], bytes]) -> None:
    state = b'{"format":1,"streams":["0000000000000001"],"starts":{},"ends":{},"positions":{},"lease_us":1,"checkpoint_us":1,"owners":{},"members":{},"checkpoint":null,"checkpoints":[],"resets":0}'
    survives(lambda: GroupStateCodec().decode(mutate(state)))
    survives(lambda: JsonCodec().decode(mutate(state)))


def test_json_that_is_nested_without_end_is_one_error() -> None:
    deep = b"[" * 100_000
    with pytest.raises(ValueError, match="deep"):
        parse_json(deep)
    with pytest.raises(CorruptStore):
        JsonCodec().decode(deep)
    with pytest.raises(CorruptStore):
        GroupStateCodec().decode(deep)
    assert is_nested([[1]], 1)
    assert not is_nested({"a": [1]}, 2)


@FEW
@given(st.data(), json_values)
def test_archive_metadata(data: st.DataObject, other: Any) -> None:
    schema = base64.b64encode(pa.schema([("n", pa.int64())]).serialize().to_pybytes()).decode()
    archive = {
        "made_at": 1, "made_by": "x", "request": None, "scope": None,
        "streams": [{"name": "s/a", "id": "1", "created_at": 1, "sealed": False, "tags": {}, "key": None, "time": None,
                     "raw": False, "schemas": [{"arrow": schema}], "epoch": 0, "next_segment": 1, "appended_at": 0,
                     "from": f"{1:016x}:{0:016x}@0", "to": f"{1:016x}:{0:016x}@0", "events": 0, "digest": "", "more": {},
                     "segments": [{"segment": "0.0", "low": "0", "high": "f", "retired": None, "from": 0, "to": 0,
                                   "digest": "0" * 64, "files": []}]}],
    }  # fmt: skip
    changed = with_other(archive, data, other)
    blobs = MemoryBlobs()
    whole = {"anabranch": "archive", "format": 1, "archive": changed}
    try:
        whole["digest"] = metadata_digest(changed)
    except UnicodeEncodeError:
        return
    blobs.put(METADATA, [json.dumps(whole).encode()])
    assert isinstance(survives(lambda: read_metadata(blobs, "place")), AnabranchError)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 100_000,
        b"\xff",
        b"null",
        b'{"anabranch":"archive","format":1e999}',
        b'{"anabranch":"archive","format":1,"archive":"\\ud800"}',
        b"1" * 5_000,
    ],
)
def test_malformed_archive_metadata_is_refused(text: bytes) -> None:
    blobs = MemoryBlobs()
    blobs.put(METADATA, [text])
    with pytest.raises(CorruptArchive):
        read_metadata(blobs, "place")


@settings(max_examples=200, deadline=None, derandomize=FIXED)
@given(st.text(max_size=80), mutations())
def test_texts(text: str, mutate: Callable[[bytes], bytes]) -> None:
    cut = str(StreamCut.of(StreamId(1), {SegmentId(0, 0): 5}))
    for each in (text, mutate(cut.encode()).decode("utf-8", "replace")):
        survives(lambda each=each: StreamCut.parse(each))  # type: ignore[misc]
        survives(lambda each=each: EventPointer.parse(each))  # type: ignore[misc]
        survives(lambda each=each: SourceOffset.from_json({"stream": each, "origin": each, "cut": each}))  # type: ignore[misc]
        survives(lambda each=each: parse_keys(f"{each}\nmain {each}", "here"))  # type: ignore[misc]


@FEW
@given(json_values)
def test_offsets_of_spark(value: Any) -> None:
    survives(lambda: SourceOffset.from_json(value))


def test_a_batch_with_wrong_lengths_is_refused_although_its_checksum_matches() -> None:
    data = bytearray(message().to_pybytes())
    at = data.index(bytes([0, 0, 0, 0, 5, 0, 0, 0, 10, 0, 0, 0]))
    data[at + 4 : at + 8] = (1 << 30).to_bytes(4, "little")
    assert checksum(pa.py_buffer(bytes(data)))
    with pytest.raises(CorruptBlob):
        codec.decode(pa.py_buffer(bytes(data)), RAW_COLUMNS)
