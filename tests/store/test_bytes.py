"""Byte streams: a stream as a file object."""

from __future__ import annotations

import gzip
import io
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    Closed,
    Conflict,
    CorruptStore,
    DiskFull,
    Fenced,
    InvalidArgument,
    StoreUnavailable,
    StreamExists,
    StreamNotFound,
    StreamRenamed,
    StreamSealed,
    Truncated,
)
from anabranch.log.tail import Tail
from anabranch.model.cut import StreamCut
from anabranch.reading.byte_reader import RawByteReader
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.process.children import Child, Tell
from tests.store.helpers import ANYWHERE, sound, store_at
from tests.waiting import PATIENCE_S, until_ended

FILE = "s/file"


@pytest.fixture(params=ANYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at("memory", tmp_path) as store:
        yield store


def put(store: Store, *parts: bytes, name: str = FILE) -> None:
    """Append each part as a write that is durable by itself."""
    with store.bytes(name, "ab") as file:
        for part in parts:
            file.write(part)
            file.flush()


def get(store: Store, name: str = FILE) -> bytes:
    with store.bytes(name) as file:
        return file.read()


def noise(count: int) -> bytes:
    return bytes(i * 31 % 251 for i in range(count))


def test_what_was_written_does_not_stay_in_memory(tmp_path: Path) -> None:
    block = noise(limits.MIB)
    with store_at("sqlite", tmp_path) as store, store.bytes(FILE, "xb") as file:
        file.write(block)
        file.flush()  # loads what is needed
        tracemalloc.start()
        try:
            for _ in range(8):
                file.write(block)
                file.flush()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held < 2 * limits.MIB


def test_what_was_written_is_read_at_its_positions(anywhere: Store) -> None:
    data = noise(3 * limits.MIB + 17)
    put(anywhere, data[:5], data[5:9], data[9:])
    with anywhere.bytes(FILE) as file:
        assert (file.head(), file.tail(), file.tell()) == (0, len(data), 0)
        assert file.read() == data
        for position in (0, 4, 5, 8, 9, limits.MIB + 8, limits.MIB + 9, len(data) - 1):
            assert file.seek(position) == position
            assert file.read(7) == data[position : position + 7]
        assert file.seek(-3, io.SEEK_END) == len(data) - 3
        assert file.read() == data[-3:]
    assert sound(anywhere)


def test_a_flush_makes_durable_and_nothing_is_read_before_it(anywhere: Store) -> None:
    with anywhere.bytes(FILE, "xb") as file, anywhere.bytes(FILE) as reader:
        assert file.write(b"abc") == 3
        assert (file.tell(), reader.tail(), reader.read()) == (3, 0, b"")
        file.flush()
        assert (file.tell(), reader.tail(), reader.read()) == (3, 3, b"abc")
    assert get(anywhere) == b"abc"


def test_a_writer_goes_on_behind_the_last_byte(anywhere: Store) -> None:
    put(anywhere, b"one")
    with anywhere.bytes(FILE, "ab") as file:
        assert file.tell() == 3
        file.write(b"two")
        assert file.tell() == 6
    assert get(anywhere) == b"onetwo"


def test_a_writer_opened_later_fences_off_the_one_before(anywhere: Store) -> None:
    first = anywhere.bytes(FILE, "xb")
    first.write(b"kept")
    first.flush()
    first.write(b"late")
    second = anywhere.bytes(FILE, "ab")
    assert second.tell() == 4
    with pytest.raises(Fenced):
        first.flush()
    with pytest.raises(Fenced):
        first.write(b"more")
    first.close()  # raises nothing that was raised before
    assert first.closed
    second.write(b" on")
    second.close()
    assert get(anywhere) == b"kept on"


def test_the_beginning_is_let_go_of_and_positions_stay(anywhere: Store) -> None:
    put(anywhere, b"0123", b"4567", b"89")
    with anywhere.bytes(FILE, "ab") as file:
        assert file.truncate_before(6) == 6
        assert file.truncate_before(2) == 6
        with anywhere.bytes(FILE) as reader:
            assert (reader.head(), reader.tell(), reader.read()) == (6, 6, b"6789")
            for gone in (0, 4, 5):
                reader.seek(gone)
                with pytest.raises(Truncated, match="6"):
                    reader.read(1)
            reader.seek(6)
            assert reader.read(2) == b"67"
        anywhere.streams.copy(FILE, "s/copy")
        assert get(anywhere, "s/copy") == b"6789"
        assert file.truncate_before(10) == 10
        assert get(anywhere) == b""
        with pytest.raises(InvalidArgument, match="10 bytes"):
            file.truncate_before(11)
        file.write(b"ab")
    with anywhere.bytes(FILE) as file:
        assert (file.head(), file.tell(), file.tail()) == (10, 10, 12)
        assert file.read() == b"ab"
        file.seek(9)
        with pytest.raises(Truncated):
            file.read(1)


def test_the_tail_is_known_where_every_event_is_gone(anywhere: Store) -> None:
    put(anywhere, b"0123")
    anywhere.streams.truncate(FILE, anywhere.cuts.tail(FILE))
    with anywhere.bytes(FILE) as file:
        assert (file.head(), file.tail(), file.read()) == (4, 4, b"")
    put(anywhere, b"45")
    with anywhere.bytes(FILE) as file:
        assert (file.head(), file.read()) == (4, b"45")


def test_a_copy_goes_on_at_its_position_where_every_event_is_gone(anywhere: Store) -> None:
    put(anywhere, b"0123", b"4567")
    copies = {"s/file": "s/copy", "s/copy": "s/copy-of-copy"}
    for name, copy in copies.items():
        anywhere.streams.copy(name, copy)
        anywhere.streams.truncate(copy, anywhere.cuts.tail(copy))
        with anywhere.bytes(copy) as file:
            assert (file.head(), file.tail(), file.read()) == (8, 8, b"")
    anywhere.streams.seal("s/file")
    anywhere.streams.copy("s/file", "s/of-sealed")
    anywhere.streams.truncate("s/of-sealed", anywhere.cuts.tail("s/of-sealed"))
    for copy in (*copies.values(), "s/of-sealed"):
        put(anywhere, b"89", name=copy)
        with anywhere.bytes(copy) as file:
            assert (file.head(), file.tail(), file.read()) == (8, 10, b"89")
    assert sound(anywhere)


def test_a_sealed_stream_whose_every_event_is_gone_is_empty(anywhere: Store) -> None:
    put(anywhere, b"0123", b"4567")
    anywhere.streams.seal(FILE)
    anywhere.streams.truncate(FILE, anywhere.cuts.tail(FILE))
    with anywhere.bytes(FILE, follow=True) as file:
        assert (file.tell(), file.head(), file.tail(), file.read()) == (0, 0, 0, b"")


def test_reading_again_after_truncated_bytes_is_refused_again(anywhere: Store) -> None:
    size = 1000
    put(anywhere, *(bytes([number]) * size for number in range(60)))
    stream = anywhere.streams.view(FILE)
    with anywhere.bytes(FILE) as file:
        assert file.raw.read(size) == bytes(size)
        anywhere.streams.truncate(FILE, StreamCut.of(stream.info.id, {stream.current[0].id: 50}))
        refused = 0
        while refused < 6:
            position = file.raw.tell()
            try:
                data = file.raw.read(size)
            except Truncated:
                refused += 1
            else:
                assert data == bytes([position // size]) * size
        file.raw.seek(50 * size, io.SEEK_SET)
        assert file.raw.read(1) == bytes([50])


@pytest.mark.parametrize("how", ["read", "read all", "readinto", "readline", "readlines"])
def test_after_a_failed_read_the_same_bytes_are_read_again(
    anywhere: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    data = b"".join(b"line %d\n" % number for number in range(5_000))
    put(anywhere, *(data[i : i + 1_000] for i in range(0, len(data), 1_000)))
    readinto, calls = RawByteReader.readinto, count()

    def failing(reader: RawByteReader, buffer: bytearray) -> int:
        if next(calls) in (0, 2, 5, 30):
            raise StoreUnavailable("for a moment")
        return readinto(reader, buffer)

    def filled(file: ab.ByteReader) -> bytes:
        buffer = bytearray(7_777)
        return bytes(buffer[: file.readinto(buffer)])

    monkeypatch.setattr(RawByteReader, "readinto", failing)
    read: Callable[[ab.ByteReader], bytes] = {
        "read": lambda file: file.read(7_777),
        "read all": lambda file: file.read(),
        "readinto": filled,
        "readline": lambda file: file.readline(),
        "readlines": lambda file: b"".join(file.readlines(7_777)),
    }[how]
    found, failed = b"", 0
    with anywhere.bytes(FILE) as file:
        while len(found) < len(data):
            position = file.tell()
            try:
                found += read(file)
            except StoreUnavailable:
                failed += 1
                assert file.tell() == position
    assert (found, failed) == (data, 4)


def test_the_end_is_never_cut(store: Store) -> None:
    with store.bytes(FILE, "xb") as file:
        file.write(b"0123")
        assert file.truncate() == 4
        assert file.truncate(4) == 4
        with pytest.raises(io.UnsupportedOperation, match="truncate_before"):
            file.truncate(2)


def test_history_is_read_at_the_same_positions(store: Store) -> None:
    data = noise(50_000)
    put(store, *(data[i : i + 5_000] for i in range(0, len(data), 5_000)))
    store.compact(force=True)
    put(store, b"tail")
    with store.bytes(FILE) as file:
        for position in (0, 4_999, 5_000, 31_234, 49_999, 50_000):
            file.seek(position)
            assert file.read(3) == (data + b"tail")[position : position + 3]
        file.seek(0)
        assert file.read() == data + b"tail"
    assert sound(store)


def test_a_copy_is_a_byte_stream_that_goes_on_by_itself(store: Store) -> None:
    put(store, b"0123", b"4567")
    store.streams.copy(FILE, "s/copy")
    with store.bytes("s/copy") as file:
        assert (file.tail(), file.read()) == (8, b"01234567")
    put(store, b"ab", name="s/copy")
    put(store, b"89")
    assert (get(store), get(store, "s/copy")) == (b"0123456789", b"01234567ab")


def test_a_follower_waits_for_more(store: Store) -> None:
    put(store, b"ab")
    with store.bytes(FILE, follow=True) as file:
        assert file.read(2) == b"ab"
        found: list[bytes] = []
        waiting = threading.Thread(target=lambda: found.append(file.read(3)))
        waiting.start()
        put(store, b"c", b"de")
        until_ended(waiting)
        assert found == [b"cde"]


def test_a_follower_comes_to_the_end_of_a_sealed_stream(store: Store) -> None:
    put(store, b"ab")
    with store.bytes(FILE, follow=True) as file:
        found: list[bytes] = []
        waiting = threading.Thread(target=lambda: found.append(file.read()))
        waiting.start()
        put(store, b"c")
        store.streams.seal(FILE)
        until_ended(waiting)
        assert found == [b"abc"]
    with store.bytes(FILE, follow=True) as file:
        assert (file.read(), file.read()) == (b"abc", b"")


def test_a_follower_that_is_closed_waits_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, b"ab")
    file = store.bytes(FILE, follow=True)
    told: list[BaseException] = []
    waits, wait = threading.Event(), Tail.wait

    def waited(*arguments: Any) -> bool:
        waits.set()
        return wait(*arguments)

    def read() -> None:
        try:
            file.read(3)
        except Closed as exc:
            told.append(exc)

    monkeypatch.setattr(Tail, "wait", waited)
    waiting = threading.Thread(target=read)
    waiting.start()
    assert waits.wait(PATIENCE_S)
    file.close()
    until_ended(waiting)
    assert len(told) == 1


def test_libraries_take_it_for_a_file(store: Store) -> None:
    data = noise(200_000)
    with store.bytes("s/gz", "xb") as file, gzip.GzipFile(fileobj=file, mode="wb") as packed:
        packed.write(data)
    with store.bytes("s/gz") as source, gzip.GzipFile(fileobj=source) as packed:
        packed.seek(150_000)
        assert packed.read() == data[150_000:]
    with store.bytes("s/zip", "xb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", data)
        archive.writestr("b", b"second")
    with store.bytes("s/zip") as source, zipfile.ZipFile(source) as archive:
        assert archive.testzip() is None
        assert (archive.read("b"), archive.read("a")) == (b"second", data)
    table = pa.table({"n": range(10_000), "t": [str(n) for n in range(10_000)]})
    with store.bytes("s/parquet", "xb") as file:
        pq.write_table(table, file)
    with store.bytes("s/parquet") as source:
        assert pq.read_table(source).equals(table)
    with store.bytes("s/text", "xb") as file, io.TextIOWrapper(file, "utf-8") as text:
        text.write("Ärger\nund mehr\n")
    with store.bytes("s/text") as source, io.TextIOWrapper(source, "utf-8") as lines:
        assert (source.name, lines.readlines()) == ("s/text", ["Ärger\n", "und mehr\n"])


def test_arrays_of_any_shape_are_written(store: Store) -> None:
    arrays: list[Any] = [np.arange(6, dtype=np.uint8).reshape(2, 3), np.empty((0, 3)), np.array(7, np.uint8)]
    with store.bytes("s/array", "xb") as file:
        assert [file.write(array) for array in arrays] == [6, 0, 1]
    assert get(store, "s/array") == bytes([*range(6), 7])
    with store.bytes("s/array") as source:
        into: Any = np.empty((0, 3))
        assert source.readinto(into) == 0


def test_readinto_and_lines(store: Store) -> None:
    put(store, b"one\ntw", b"o\nthree")
    with store.bytes(FILE) as file:
        buffer = bytearray(5)
        assert file.readinto(buffer) == 5
        assert buffer == b"one\nt"
        file.seek(0)
        assert list(file) == [b"one\n", b"two\n", b"three"]
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)


def test_a_closed_file_says_so(store: Store) -> None:
    writer = store.bytes(FILE, "xb")
    assert (writer.readable(), writer.seekable(), writer.writable()) == (False, False, True)
    reader = store.bytes(FILE)
    for file in (writer, reader):
        file.close()
        file.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"x")
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)
    with pytest.raises(ValueError, match="closed"):
        reader.tell()


def test_closing_the_store_makes_durable_what_was_written(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        file = store.bytes(FILE, "xb")
        file.write(b"abc")
    assert file.closed
    with ab.connect(tmp_path / "store", create=True) as store:
        assert get(store) == b"abc"


def test_what_is_no_byte_stream_is_refused_in_words(store: Store) -> None:
    store.streams.create("s/raw")
    with store.writer("s/raw") as writer:
        writer.write(b"x").result()
    for mode in ("rb", "ab"):
        with pytest.raises(InvalidArgument, match=r"'s/raw' is not a byte stream"):
            store.bytes("s/raw", mode)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="got 'wb'"):
        store.bytes(FILE, "wb")  # type: ignore[call-overload]
    with pytest.raises(StreamNotFound):
        store.bytes(FILE)
    put(store, b"x")
    with pytest.raises(StreamExists):
        store.bytes(FILE, "xb")
    store.streams.rename(FILE, "s/new")
    with pytest.raises(StreamRenamed):
        store.bytes(FILE, "ab")
    store.streams.seal("s/new")
    with pytest.raises(StreamSealed):
        store.bytes("s/new", "ab")
    assert get(store, "s/new") == b"x"


def test_a_raw_stream_that_was_never_written_opens_as_bytes(anywhere: Store) -> None:
    anywhere.streams.create(FILE, tags={"a": "b"})
    stream = anywhere.streams.get(FILE)
    with anywhere.bytes(FILE) as reader:
        assert (reader.read(), reader.head(), reader.tail()) == (b"", 0, 0)
        assert anywhere.streams.get(FILE) == stream, "reading changes nothing"
        put(anywhere, b"abc")
        assert reader.read() == b"abc"
    info = anywhere.streams.get(FILE)
    assert (info.id, info.tags, info.schema.raw) == (stream.id, stream.tags, False)
    put(anywhere, b"def")
    anywhere.compact(force=True)
    assert get(anywhere) == b"abcdef"
    assert anywhere.streams.get(FILE).schema_version == info.schema_version
    assert sound(anywhere)


def test_only_a_raw_stream_that_never_held_an_event_becomes_bytes(store: Store) -> None:
    store.streams.create("s/emptied")
    with store.writer("s/emptied") as writer:
        writer.write(b"x").result()
    store.streams.truncate("s/emptied", ab.TAIL)
    store.streams.create("s/wide", scaling=2)
    store.streams.create("s/scaled")
    store.streams.scale("s/scaled", 2)
    store.streams.create("s/typed", schema={"a": pa.int64()})
    for name in ("s/emptied", "s/wide", "s/scaled", "s/typed"):
        before = store.streams.get(name)
        for mode in ("rb", "ab"):
            with pytest.raises(InvalidArgument, match="is not a byte stream"):
                store.bytes(name, mode)  # type: ignore[call-overload]
        assert store.streams.get(name) == before
    store.streams.create("s/sealed")
    store.streams.seal("s/sealed")
    with pytest.raises(StreamSealed):
        store.bytes("s/sealed", "ab")


def test_whoever_writes_events_to_what_has_become_bytes_gets_an_error(anywhere: Store) -> None:
    anywhere.streams.create(FILE)
    # Each was opened while the stream was raw.
    writer, named = anywhere.writer(FILE), anywhere.writer(FILE, writer_id="w")
    follower = anywhere.reader(FILE, follow=True)
    txn = anywhere.transaction()
    txn.writer(FILE).write(b"in a transaction")
    txn.flush()
    put(anywhere, b"abc")
    for each in (writer, named):
        ack = each.write(b"late", key="k")
        with pytest.raises(Conflict, match=f"'{FILE}' has become a byte stream"):
            ack.result()
        with pytest.raises(Conflict):
            each.write(b"later")
        with pytest.raises(Conflict):
            each.flush()
        each.close()
    with pytest.raises(Conflict, match="byte stream"):
        txn.commit()
    with pytest.raises(Conflict, match="byte stream"):
        follower.read(timeout_s=60)
    put(anywhere, b"def")
    assert get(anywhere) == b"abcdef"
    with pytest.raises(InvalidArgument, match="is a byte stream"):
        anywhere.writer(FILE)
    assert sound(anywhere)


def test_an_event_that_comes_first_keeps_the_stream_raw(anywhere: Store) -> None:
    anywhere.streams.create(FILE)
    with anywhere.writer(FILE) as writer:
        reader = anywhere.bytes(FILE)
        writer.write(b"event").result()
        with pytest.raises(InvalidArgument, match="is not a byte stream"):
            anywhere.bytes(FILE, "ab")
        with pytest.raises(InvalidArgument, match="is not a byte stream"):
            reader.read()
    with anywhere.reader(FILE) as events:
        assert [event.body for event in events] == [b"event"]


def test_bytes_that_do_not_follow_each_other_are_not_read(store: Store) -> None:
    put(store, b"abc")
    with store._writer(store.streams.get(FILE).id) as stranger:  # as an older release did
        stranger.write({"until": 9, "bytes": b"xyz"})
    with store.bytes(FILE) as file, pytest.raises(CorruptStore, match="do not follow each other"):
        file.read()


def test_nothing_lands_behind_a_hole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of three appends is refused, though there is room again for those behind it."""
    with store.bytes(FILE, "xb") as file:
        file.write(b"kept")
    file = store.bytes(FILE, "ab")
    whole, left = store.blobs.put, [1]

    def fill_up(key: str, chunks: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise DiskFull("no space left")
        whole(key, chunks)

    monkeypatch.setattr(store.blobs, "put", fill_up)

    def write() -> None:
        file.write(b"x" * (3 * limits.BYTE_GATHERED_BYTES))
        file.flush()

    with pytest.raises(AnabranchError):
        write()
    file.close()
    assert left == [0]
    put(store, b" on")
    assert get(store) == b"kept on"


Step = tuple[str, Any]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.binary(max_size=40)),
        st.tuples(st.just("flush"), st.none()),
        st.tuples(st.just("reopen"), st.none()),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("seek"), st.integers(0, 200)),
        st.tuples(st.just("back"), st.integers(0, 20)),
        st.tuples(st.just("read"), st.integers(0, 50)),
        st.tuples(st.just("readinto"), st.integers(0, 50)),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(steps=STEPS)
def test_it_reads_as_bytesio_does(steps: list[Step]) -> None:
    """Whatever is written, compacted and reopened meanwhile, a reader sees what a file in memory would hold."""
    with ab.connect("memory://", settings=Settings(event_bytes_max=16)) as store:
        store.scopes.create("s")
        file, model, waiting = store.bytes(FILE, "xb"), io.BytesIO(), b""
        with store.bytes(FILE) as reader:
            for what, value in steps:
                match what:
                    case "write":
                        file.write(value)
                        waiting += value
                    case "flush" | "reopen":
                        file.flush()
                        place = model.tell()
                        model.seek(0, io.SEEK_END)
                        model.write(waiting)
                        model.seek(place)
                        waiting = b""
                        if what == "reopen":
                            file = store.bytes(FILE, "ab")
                        assert file.tell() == reader.tail() == len(model.getvalue())
                    case "compact":
                        store.compact(force=True)
                    case "seek":
                        assert reader.seek(value) == model.seek(value)
                    case "back":
                        end = len(model.getvalue())
                        assert reader.seek(-min(value, end), io.SEEK_END) == model.seek(-min(value, end), io.SEEK_END)
                    case "read":
                        assert reader.read(value) == model.read(value)
                    case "readinto":
                        ours, theirs = bytearray(value), bytearray(value)
                        assert reader.readinto(ours) == model.readinto(theirs)
                        assert ours == theirs
                assert reader.tell() == model.tell()
        file.close()
        assert get(store) == model.getvalue() + waiting


def pour_bytes(tell: Tell, river: Path, begin: int) -> None:
    """Write numbered lines for ever, and tell how many bytes are durable."""
    with ab.connect(river, create=True) as store:
        file = store.bytes(FILE, "ab")
        number = begin
        while True:
            for _ in range(7):
                file.write(b"%08d\n" % number)
                number += 1
            file.flush()
            tell("durable", file.tell())


def test_a_writer_that_is_killed_loses_nothing_durable_and_leaves_no_hole(tmp_path: Path) -> None:
    river = tmp_path / "river"
    with ab.connect(river, create=True) as store:
        store.scopes.create("s")
        begin = 0
        for round_ in range(3):
            child = Child(tmp_path, f"pour-{round_}", pour_bytes, river, begin)
            child.wait_for("durable")
            child.kill()
            durable = int(child.lines()[-1][1])
            data = get(store)
            assert len(data) >= durable
            assert data == b"".join(b"%08d\n" % n for n in range(len(data) // 9))
            begin = len(data) // 9
        assert sound(store)


def test_a_seek_costs_the_logarithm(store: Store) -> None:
    """In calls of the catalog: doubling the events a few times adds a few lookups, not as many as there are events."""
    with store.bytes(FILE, "xb") as file:
        for number in range(512):
            file.write(b"%03d\n" % number)
            file.flush()
    looks = 0
    reading = store.catalog.reading

    with store.bytes(FILE) as reader:

        def counting() -> Any:
            nonlocal looks
            looks += 1
            return reading()

        store.catalog.reading = counting  # type: ignore[method-assign]
        reader.seek(4 * 300)
        assert reader.read(4) == b"300\n"
    assert 0 < looks <= 8, "a snapshot for the tail, one for the place, one for the page"


def test_a_stream_that_was_scaled_is_no_byte_stream_any_more(store: Store) -> None:
    put(store, b"abc")
    file = store.bytes(FILE)
    store.streams.scale(FILE, segments=2)
    with pytest.raises(InvalidArgument, match="not a byte stream"):
        file.tail()
    with pytest.raises(InvalidArgument, match="not a byte stream"):
        store.bytes(FILE, "ab")


def test_rows_do_not_get_among_the_bytes(store: Store) -> None:
    put(store, b"abc")
    store.streams.create("s/in")
    group = store.groups.open("s/group", streams=["s/in"])
    rows = pa.table({"until": pa.array([9], pa.int64()).cast(pa.timestamp("us", "UTC")), "bytes": [b"xyz"]})
    refused = pytest.raises(InvalidArgument, match=r"is a byte stream: write to it with store.bytes")
    with refused:
        store.writer(FILE)
    with refused, store.transaction() as txn:
        txn.writer(FILE).write_batch(rows)
    with refused:
        store.stager(FILE)
    with group.reader("r", delivery="exactly_once") as reader, refused:
        reader.commit({FILE: rows})
    assert get(store) == b"abc"


def test_a_byte_stream_that_was_scaled_is_one_of_events(store: Store) -> None:
    put(store, b"abc")
    store.streams.scale(FILE, 2)
    with store.writer(FILE) as writer:
        writer.write({"until": 9, "bytes": b"xyz"})
    with store.reader(FILE) as reader:
        assert len(list(reader)) == 2
