"""One life of a store on every pairing of catalog and blobs: written, scaled, compacted, collected, truncated, published."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import ConditionFailed, StreamExists, StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.streams.publish import Publication
from tests import s3_server
from tests.postgres_server import drop, fresh_url
from tests.waiting import until_ended

# Behind the catalog, where the blobs are; behind them, where compacted files are if that is somewhere else.
PERMANENT = ("sqlite+folder", "postgres+folder", "sqlite+s3", "postgres+s3", "sqlite+folder+s3", "sqlite+s3+folder")
PAIRINGS = (*PERMANENT, "memory", "postgres+memory")
SCHEMA = pa.schema([("device", pa.string()), ("n", pa.int64())])

Open = Callable[[], Store]


@pytest.fixture(params=PAIRINGS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the store: the same one each time, but for `memory`, which lives as long as its object."""
    settings = Settings(inline_bytes_max=2 * limits.KIB)  # so that blobs are written too
    catalog, *blobs = request.param.split("+")
    places = [_place(kind, tmp_path / f"blobs-{tier}") for tier, kind in enumerate(blobs)]
    where: Any = dict(zip(("blobs", "history"), places, strict=False))
    if catalog == "postgres":
        url = fresh_url()
        yield lambda: ab.connect(url, settings=settings, **where, create=True)
        drop(url)
    else:
        place = "memory://" if catalog == "memory" else tmp_path / "store"
        yield lambda: ab.connect(place, settings=settings, **where, create=True)


def _place(kind: str, folder: Path) -> str:
    return {"folder": str(folder), "memory": "memory://"}.get(kind) or s3_server.fresh_url()


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"device": [f"d{n % 50}" for n in numbers], "n": list(numbers)}, schema=SCHEMA)


def numbers(store: Store, **how: object) -> list[int]:
    with store.reader("iot/raw", **how) as reader:  # type: ignore[arg-type]
        return [n for batch in reader.batches() for n in batch.column("n").to_pylist()]


def test_a_store_lives_alike_on_every_pairing(open_store: Open) -> None:
    with open_store() as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw", schema=SCHEMA, key="device", scaling=2)
        with pytest.raises(StreamExists):
            store.streams.create("iot/raw", schema=SCHEMA, key="device")

        # Written under scaling, from several threads.
        def write(me: int) -> None:
            with store.writer("iot/raw", writer_id=f"w{me}") as writer:
                for step in range(6):
                    writer.write_batch(rows(1000 * me + 100 * step, 100)).result(120)
                writer.write({"device": "d1", "n": 1000 * me + 600}).result(120)

        threads = [threading.Thread(target=write, args=(me,)) for me in range(4)]
        for each in threads:
            each.start()
        for segments in (3, 1, 4):
            store.streams.scale("iot/raw", segments)
        until_ended(*threads)
        expected = sorted(1000 * me + n for me in range(4) for n in range(601))
        assert sorted(numbers(store)) == expected
        with store.reader("iot/raw") as reader:
            by_key: dict[tuple[str, int], list[int]] = {}
            for event in reader:
                by_key.setdefault((event.key, event.body["n"] // 1000), []).append(event.body["n"])
        assert all(sent == sorted(sent) for sent in by_key.values())

        # A condition, and a request that is asked again.
        store.streams.create("iot/one")
        with store.writer("iot/one") as writer:
            assert writer.write(b"a", expected=0).result(120).offset == 0
        with pytest.raises(ConditionFailed), store.writer("iot/one") as writer:
            writer.write(b"b", expected=0).result(120)
        first = store.streams.scale("iot/one", 2, request="twice")
        assert store.streams.scale("iot/one", 2, request="twice") == first

        # Compacted and collected, it reads the same.
        assert store.compact(force=True).files
        store.collect(horizon_us=0)
        assert store.collect(horizon_us=0).blobs
        assert sorted(numbers(store)) == expected
        assert list(store.check()) == []

        # Published once, in one piece.
        with store.hold("job", "me"):
            stager = store.stager("iot/raw")
            stager.write(rows(10_000, 500))
            staged = stager.finish()
            view = store.streams.view("iot/raw")
            for _ in range(2):
                store.publish([Publication(view.info.id, staged)], request="job/1")
        assert sorted(numbers(store)) == [*expected, *range(10_000, 10_500)]

        # Truncated where a reader stands.
        tail: StreamCut = store.cuts.tail("iot/raw")
        with store.writer("iot/raw") as writer:
            pointer = writer.write({"device": "last", "n": -1}).result(120)
        store.streams.truncate("iot/raw", tail)
        assert numbers(store) == [-1]
        assert store.fetch(pointer).body["n"] == -1
        store.collect(horizon_us=0)
        assert list(store.check()) == []
        store.streams.seal("iot/raw")
        store.streams.delete("iot/one")
        with pytest.raises(StreamNotFound):
            store.streams.get("iot/one")


@pytest.mark.parametrize("open_store", PERMANENT, indirect=True)
def test_what_was_written_is_there_when_the_store_is_opened_again(open_store: Open) -> None:
    with open_store() as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw", schema=SCHEMA, key="device", scaling=3)
        with store.writer("iot/raw") as writer:
            writer.write_batch(rows(0, 1000))
    with open_store() as store, open_store() as other:
        assert sorted(numbers(store)) == list(range(1000))
        with other.writer("iot/raw") as writer:
            writer.write({"device": "d", "n": 1000}).result(120)
        assert sorted(numbers(store)) == list(range(1001))


@pytest.mark.parametrize("open_store", PERMANENT, indirect=True)
def test_a_reader_follows_what_another_process_would_write(open_store: Open) -> None:
    with open_store() as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw", schema=SCHEMA, key="device")
        with (
            open_store() as other,
            other.writer("iot/raw") as writer,
            store.reader("iot/raw", follow=True) as reader,
        ):
            events = iter(reader)
            for number in range(20):
                writer.write({"device": "d", "n": number}).result(120)
                assert next(events).body["n"] == number
