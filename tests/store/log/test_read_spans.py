"""Reading segments of many spans, and large messages that are verified before they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors, limits
from anabranch.core.checksum import checksum
from anabranch.log import fetch
from anabranch.log.plan import plan
from anabranch.log.read import LogReader
from anabranch.log.read_ahead import ReadAhead
from tests.store.helpers import ANYWHERE, bodies_of, store_at

SEGMENT = ab.SegmentId(0, 0)


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ab.Store]:
    with store_at(request.param, tmp_path) as store:
        yield store


def grown(store: ab.Store, generations: int) -> str:
    """A stream that is a copy of a copy, each with three more events of its own; its name."""
    store.streams.create("s/0")
    for number in range(generations):
        if number:
            store.streams.copy(f"s/{number - 1}", f"s/{number}")
        with store.writer(f"s/{number}") as writer:
            for event in range(3):
                writer.write(b"%d" % (3 * number + event))
                if event == 1:
                    writer.flush()
    return f"s/{generations - 1}"


def test_all_events_of_many_spans_are_read_whatever_is_looked_up_at_once(
    store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = grown(store, 12)
    wanted = [b"%d" % number for number in range(36)]
    view = store.streams.view(name)
    columns = LogReader(store.catalog, store.blobs, store.runtime).columns
    for spans, extents in ((64, 512), (5, 512), (3, 7), (64, 1), (1, 2)):
        monkeypatch.setattr(limits, "SPANS_PER_LOOKUP", spans)
        assert bodies_of(store, name) == wanted
        offset, seen = 2, list[int]()
        while offset < 35:
            with store.catalog.reading() as reading:
                page = plan(reading, view, SEGMENT, offset, 35, extents_max=extents, columns=columns)
            assert len(page.extents) <= extents
            seen += [at + piece.shift for piece in page.extents for at in range(piece.start, piece.stop)]
            offset = page.stop
        assert seen == list(range(2, 35))


def test_a_plan_of_a_view_that_is_older_than_the_catalog_still_leads_to_its_own_logs(store: ab.Store) -> None:
    name = grown(store, 20)
    old = store.streams.view(name)
    store.compact(force=True)
    new = store.streams.view(name)
    assert len(new.spans[SEGMENT]) < len(old.spans[SEGMENT])
    columns = LogReader(store.catalog, store.blobs, store.runtime).columns
    with store.catalog.reading() as reading:
        for view in (old, new):
            page = plan(reading, view, SEGMENT, 0, 60, extents_max=512, columns=columns)
            covered = [at + piece.shift for piece in page.extents for at in range(piece.start, piece.stop)]
            assert covered == list(range(60))
            assert {piece.extent.log for piece in page.extents} <= {span.log for span in view.spans[SEGMENT]}


def test_a_revisioned_stream_that_was_copied_or_collected_still_has_its_newest_entry(store: ab.Store) -> None:
    stream = store.shared.revisioned("s/_x")
    for value in (b"a", b"b"):
        stream.append(value)
    store.streams.copy("s/_x", "s/_y")
    copy = store.shared.revisioned("s/_y")
    assert copy.last() == stream.last() == (2, b"b")
    assert copy.append(b"c", expected=2) == 3
    assert (copy.last(), stream.last()) == ((3, b"c"), (2, b"b"))
    stream.truncate(2)
    assert stream.last() is None
    store.collect(horizon_us=0)
    assert stream.last() is None and stream.latest() == 2
    assert stream.append(b"d", expected=2) == 3
    assert stream.last() == (3, b"d")


# large messages

ROWS = 400


def large(folder: Path) -> int:
    """A stream of three large messages in each of two segments; how many events."""
    noise = np.random.default_rng(5)
    with ab.connect(folder, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
        with store.writer("s/a") as writer:
            for _ in range(3):
                payload = [noise.bytes(2_000) for _ in range(ROWS)]
                table = pa.table({"key": [f"k{n}" for n in range(ROWS)], "payload": payload})
                writer.write_batch(table).result()
    return 3 * ROWS


def test_large_messages_are_verified_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = large(tmp_path / "store")
    sums: list[int] = []

    def counted(data: pa.Buffer | bytes) -> int:
        sums.append(checksum(data))
        return sums[-1]

    monkeypatch.setattr(fetch, "checksum", counted)
    with ab.connect(tmp_path / "store", create=True) as store:
        for _ in range(3):
            with store.reader("s/a") as reader:
                assert sum(batch.num_rows for batch in reader.batches()) == count
    assert len(sums) == len(set(sums)) == 6


def test_damage_in_a_message_that_was_verified_ahead_is_reported_to_who_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadAhead, "begin", lambda self, place, work: work())  # always ahead
    large(tmp_path / "store")
    with ab.connect(tmp_path / "store", create=True) as store:
        last = Path([store.blobs.path(blob.key) for blob in store.blobs.list()][-1])
    data = bytearray(last.read_bytes())
    data[len(data) // 4] ^= 1  # in the first of its two messages
    last.write_bytes(data)
    with ab.connect(tmp_path / "store", create=True) as store, store.reader("s/a") as reader:
        seen: list[int] = []

        for _ in range(2):
            with pytest.raises(errors.CorruptBlob):
                seen.extend(batch.num_rows for batch in reader.batches())
    # Of one segment what lies before the damage, of the other all.
    assert sum(seen) == 3 * ROWS - ROWS // 2
