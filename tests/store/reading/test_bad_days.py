"""Readers while data is truncated, deleted, damaged or compacted: they report an error, or still read the data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from anabranch.catalog.port import Reading
from anabranch.model.ids import LogId
from anabranch.reading.row_source import StreamDelivery
from tests.store.reading.kit import (
    BOTH_TIERS,
    create,
    no_change,
    numbers,
    reader,
    squeeze,
    write,
)

# interrupted


@pytest.mark.parametrize("kind", ["events", "batches"])
def test_reading_continues_after_ctrl_c_without_loss_or_duplicates(store: ab.Store, kind: str) -> None:
    create(store)
    write(store, 0, 100)

    def pulled(*args: Any, **options: Any) -> StreamDelivery | None:
        found = real(*args, **options)
        if found is not None and found.rows.first:
            r._source.pull = real  # type: ignore[method-assign]
            raise KeyboardInterrupt
        return found

    with reader(store, batch_rows=10) as r:
        found = r.read() if kind == "batches" else next(iter(r))  # from now on it is of this kind
        assert found is not None
        real, r._source.pull = r._source.pull, pulled  # type: ignore[method-assign]
        seen = [0] if kind == "events" else list(range(10))

        def go_on() -> None:
            for each in r if kind == "events" else r.batches():
                seen.extend([each.body["n"]] if isinstance(each, ab.Event) else each.column("n").to_pylist())

        with pytest.raises(KeyboardInterrupt):
            go_on()
        assert seen == list(range(10))
        assert [at for _, at in r.position] == [10]
        go_on()
        assert seen == list(range(100))
        assert [at for _, at in r.position] == [100]


def test_reading_continues_after_a_catalog_error_without_loss(store: ab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create(store)
    write(store, 0, 40, size=1)
    monkeypatch.setattr("anabranch.limits.EXTENTS_PER_PLAN_MAX", 16)
    with reader(store) as r:
        first = r.read()
        assert first is not None and first.num_rows == 16
        store.streams.scale("s/a", 2)  # so the next page is of a stream that must be looked at anew
        real, calls = store.catalog.reading, iter(range(10))

        def reading() -> contextlib.AbstractContextManager[Reading]:
            if next(calls) == 1:
                raise errors.StoreBusy("another program has locked the catalog")
            return real()

        monkeypatch.setattr(store.catalog, "reading", reading)
        with pytest.raises(errors.StoreBusy):
            r.read()
        assert numbers(r.batches()) == list(range(16, 40))


# truncated, deleted, damaged, compacted


def test_a_reader_below_a_truncation_gets_an_error_with_the_new_head(store: ab.Store) -> None:
    create(store)
    write(store, 0, 100)
    with reader(store, follow=True) as follower, reader(store) as ahead:
        cut = ab.StreamCut.of(store.streams.get("s/a").id, {ab.SegmentId(0, 0): 60})
        assert len(numbers(ahead.batches())) == 100
        store.streams.truncate("s/a", cut)
        with pytest.raises(errors.Truncated) as error:
            list(follower.batches())
        assert error.value.head == {"0.0": 60}
        assert ahead.read() is None
    with reader(store) as some:
        assert numbers(some.batches()) == list(range(60, 100))
    gone = ab.EventPointer(cut.stream, ab.SegmentId(0, 0), 59)
    with pytest.raises(errors.Truncated):
        store.fetch(gone)
    with pytest.raises(errors.Truncated):
        reader(store, start=ab.StreamCut.of(cut.stream, {ab.SegmentId(0, 0): 59}))


def test_a_reader_of_a_deleted_stream_gets_an_error(store: ab.Store) -> None:
    create(store)
    write(store, 0, 10)
    with reader(store, follow=True) as follower:
        assert follower.read() is not None
        store.streams.delete("s/a")
        with pytest.raises(errors.StreamNotFound, match="s/a"):
            follower.read(60)


def big(store: ab.Store) -> list[str]:
    """Two appends that are too large to be inlined; returns the keys of their blobs."""
    store.streams.create("s/raw")
    with store.writer("s/raw") as writer:
        for start in (0, 1):
            writer.write_batch(pa.table({"payload": [bytes([start]) * 1_000] * 200})).result()
    return [blob.key for blob in store.blobs.list()]


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


@BOTH_TIERS
def test_a_flipped_bit_is_reported_and_no_row_of_its_batch_is_handed_out(
    tmp_path: Path, tier: Callable[[ab.Store], None]
) -> None:
    with ab.connect(tmp_path, create=True) as store:
        store.scopes.create("s")
        big(store)
        tier(store)
        with store.catalog.reading() as reading:
            (log,) = reading.logs_after(LogId(0), 9)
            extent = reading.extents(log.id, 0, log.length, 9)[-1]
    assert extent.key is not None
    damage(tmp_path / "blobs" / extent.key, (tmp_path / "blobs" / extent.key).stat().st_size // 3)
    with ab.connect(tmp_path, create=True) as store, reader(store, "s/raw") as some:
        if tier is no_change:
            batch = some.read()
            assert batch is not None
            assert batch.num_rows == 200
        for _ in range(2):  # reading on does not skip it
            with pytest.raises(errors.CorruptBlob, match=extent.key):
                some.read()


def test_a_missing_blob_is_reported(tmp_path: Path) -> None:
    with ab.connect(tmp_path, create=True) as store:
        store.scopes.create("s")
        _, second = big(store)
    (tmp_path / "blobs" / second).unlink()
    with ab.connect(tmp_path, create=True) as store, reader(store, "s/raw") as some:
        assert some.read() is not None
        with pytest.raises(errors.BlobMissing, match=second):
            some.read()


def test_a_plan_that_compaction_made_stale_is_made_again(tmp_path: Path) -> None:
    with ab.connect(tmp_path, create=True) as store:
        store.scopes.create("s")
        keys = big(store)
        with reader(store, "s/raw", batch_rows=64) as some:
            rows = [some.read()]
            squeeze(store)
            for key in keys:  # as the collector will, once they are old enough
                store.blobs.delete(key)
            while (batch := some.read()) is not None:
                rows.append(batch)
        offsets = [n for b in rows if b is not None for n in b.column("_offset").to_pylist()]
        assert offsets == list(range(400))
