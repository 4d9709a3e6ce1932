"""The contract of `blobs.port.Blobs`, as tests that any blob store can run.

`BlobContract` is a class of `test_…` methods over `make()`, which the adapter's own test supplies. pytest collects the
subclass; without pytest, `run` runs it. The suites for catalogs, which need the source tree, are in `tests/contracts/`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from anabranch.blobs.port import Blobs
from anabranch.errors import AlreadyExists, BlobMissing, CorruptBlob

__all__ = ["BlobContract", "run"]

KEY = "commits/0000000000000001-00000000000000000000000a.arrow"


@contextmanager
def _expecting(error: type[BaseException]) -> Iterator[None]:
    """Fails unless its body raises `error`."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected to be raised")


class BlobContract:
    """Subclass it and implement `make()`: an empty blob store. `again()`, if implemented, opens the same store a second
    time."""

    def make(self) -> Blobs:
        """A new, empty blob store."""
        raise NotImplementedError

    def again(self) -> Blobs | None:
        """Another adapter on the store that `make` returned, as in another process; None if that is not possible."""
        return None

    def setup_method(self) -> None:
        """Open a store for one test."""
        self.blobs = self.make()

    def teardown_method(self) -> None:
        """Close it."""
        self.blobs.close()

    def test_what_was_put_is_got(self) -> None:
        self.blobs.put(KEY, [b"one ", pa.py_buffer(b"two "), b"", b"three"])
        assert self.blobs.get(KEY).to_pybytes() == b"one two three"
        assert self.blobs.size(KEY) == 13

    def test_a_range_is_got_by_offset_and_length(self) -> None:
        self.blobs.put(KEY, [b"0123456789"])
        assert self.blobs.get(KEY, 3, 4).to_pybytes() == b"3456"
        assert self.blobs.get(KEY, 8).to_pybytes() == b"89"
        assert self.blobs.get(KEY, 0, 10).to_pybytes() == b"0123456789"
        assert self.blobs.get(KEY, 4, 0).to_pybytes() == b""

    def test_a_range_beyond_the_end_is_corrupt(self) -> None:
        self.blobs.put(KEY, [b"0123"])
        for offset, length in ((0, 5), (4, 1), (9, 1)):
            with _expecting(CorruptBlob):
                self.blobs.get(KEY, offset, length)

    def test_an_unknown_key_is_missing(self) -> None:
        for length in (None, 1):
            with _expecting(BlobMissing):
                self.blobs.get(KEY, 0, length)
        assert self.blobs.size(KEY) is None

    def test_a_key_is_written_once(self) -> None:
        self.blobs.put(KEY, [b"first"])
        with _expecting(AlreadyExists):
            self.blobs.put(KEY, [b"second"])
        assert self.blobs.get(KEY).to_pybytes() == b"first"

    def test_one_of_many_racing_puts_wins(self) -> None:
        wins: list[bytes] = []
        losses: list[Exception] = []

        def race(value: bytes) -> None:
            try:
                self.blobs.put(KEY, [value])
                wins.append(value)
            except AlreadyExists as exc:
                losses.append(exc)

        racers = [threading.Thread(target=race, args=(f"racer {i}".encode(),)) for i in range(8)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(wins) == 1
        assert len(losses) == 7
        assert self.blobs.get(KEY).to_pybytes() == wins[0]

    def test_an_empty_blob_is_a_blob(self) -> None:
        self.blobs.put(KEY, [])
        assert self.blobs.size(KEY) == 0
        assert self.blobs.get(KEY).to_pybytes() == b""

    def test_many_chunks_keep_their_order(self) -> None:
        chunks = [bytes([i % 251]) * (i % 97) for i in range(3_000)]
        self.blobs.put(KEY, chunks)
        assert self.blobs.get(KEY).to_pybytes() == b"".join(chunks)

    def test_several_mebibytes_come_back_whole(self) -> None:
        block = bytes(range(256)) * 4096
        self.blobs.put(KEY, [block] * 9)
        assert self.blobs.size(KEY) == 9 * len(block)
        assert self.blobs.get(KEY, 8 * len(block), len(block)).to_pybytes() == block

    def test_a_listing_is_in_key_order_and_knows_sizes(self) -> None:
        keys = ("b/2", "a/1", "b/10", "ab/1", "b/1.x", "a-b/1", "a.b/1", "b/1-a/1", "b/1/1")
        for key in keys:
            self.blobs.put(key, [key.encode()])
        assert [*self.blobs.list()] == sorted((key, len(key)) for key in keys)
        assert [blob.key for blob in self.blobs.list("b/")] == ["b/1-a/1", "b/1.x", "b/1/1", "b/10", "b/2"]
        assert [blob.key for blob in self.blobs.list("b/1")] == ["b/1-a/1", "b/1.x", "b/1/1", "b/10"]
        assert [blob.key for blob in self.blobs.list("a")] == ["a-b/1", "a.b/1", "a/1", "ab/1"]
        assert [*self.blobs.list("nothing/")] == []

    def test_a_deleted_blob_is_gone(self) -> None:
        self.blobs.put(KEY, [b"bytes"])
        assert self.blobs.get(KEY).to_pybytes() == b"bytes"
        self.blobs.delete(KEY)
        assert self.blobs.size(KEY) is None
        assert [*self.blobs.list()] == []
        with _expecting(BlobMissing):
            self.blobs.get(KEY)
        self.blobs.delete(KEY)

    def test_bytes_that_were_got_outlive_their_deletion(self) -> None:
        self.blobs.put(KEY, [b"bytes"])
        held = self.blobs.get(KEY, 1, 3)
        self.blobs.delete(KEY)
        assert held.to_pybytes() == b"yte"

    def test_blobs_can_be_deleted_while_they_are_listed(self) -> None:
        for i in range(20):
            self.blobs.put(f"a/{i:02}", [b"x"])
        for blob in self.blobs.list("a/"):
            self.blobs.delete(blob.key)
        assert [*self.blobs.list()] == []

    def test_another_opening_sees_the_same_blobs(self) -> None:
        other = self.again()
        if other is None:
            return
        self.blobs.put(KEY, [b"bytes"])
        assert other.get(KEY).to_pybytes() == b"bytes"
        with _expecting(AlreadyExists):
            other.put(KEY, [b"others"])
        other.delete(KEY)
        assert self.blobs.size(KEY) is None
        other.close()

    def test_no_key_leads_out_of_the_place(self) -> None:
        self.blobs.put(KEY, [b"bytes"])
        ways = (
            "../out",
            "commits/../../out",
            "/etc/passwd",
            "commits//x",
            "commits/./x",
            "..",
            ".",
            "",
            "x/",
            "a\0b",
            "\ud800",
        )
        for key in ways:
            calls: tuple[Callable[[str], object], ...] = (
                lambda key: self.blobs.put(key, [b"x"]),
                self.blobs.get,
                lambda key: self.blobs.get(key, 0, 1),
                self.blobs.size,
                self.blobs.delete,
            )
            for call in calls:
                with _expecting(CorruptBlob):
                    call(key)
        for prefix in ("../", "/etc/", "commits/../../", "commits//", "a\0/"):
            with _expecting(CorruptBlob):
                next(iter(self.blobs.list(prefix)), None)
        assert [blob.key for blob in self.blobs.list()] == [KEY]

    def test_a_second_close_is_harmless(self) -> None:
        self.blobs.close()
        self.blobs.close()


def run(suite: type[BlobContract]) -> list[str]:
    """Run all tests of a suite and return their names. The first failure is raised."""
    names = [name for name in dir(suite) if name.startswith("test_")]
    for name in names:
        case = suite()
        case.setup_method()
        try:
            getattr(case, name)()
        finally:
            case.teardown_method()
    return names
