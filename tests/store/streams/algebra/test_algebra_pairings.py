"""Streams like files, the same over either kind of catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.state.former_names import FORMER_NAME
from anabranch.errors import StreamExists, StreamRenamed
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import bodies_of, by_key, events_of, sound


@pytest.fixture(params=["memory", "postgres+memory", "sqlite+folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    settings = Settings(inline_bytes_max=200)
    if request.param == "postgres+memory":
        url = fresh_url()
        with ab.connect(url, blobs="memory://", settings=settings, create=True) as opened:
            yield opened
            assert sound(opened)
        drop(url)
        return
    with ab.connect("memory://" if request.param == "memory" else tmp_path, settings=settings, create=True) as opened:
        yield opened
        assert sound(opened)


def write(store: Store, stream: str, *numbers: int) -> list[ab.EventPointer]:
    with store.writer(stream) as writer:
        acks = [writer.write(str(n).encode() + b" " * 150, key="abc"[n % 3]) for n in numbers]
        return [ack.result() for ack in acks]


def numbers(store: Store, stream: str) -> list[int]:
    return sorted(int(body) for body in bodies_of(store, stream))


def test_a_run_of_copies_joins_and_renames(store: Store) -> None:
    streams = store.streams
    store.scopes.create("s")
    streams.create("s/a", scaling=2)
    pointers = write(store, "s/a", *range(6))
    streams.scale("s/a", 3)
    write(store, "s/a", *range(6, 12))
    middle = store.cuts.tail("s/a")
    copied = streams.copy("s/a", "s/b", request="copy")
    assert streams.copy("s/a", "s/b", request="copy") == copied == streams.copy("s/a", "s/b")
    write(store, "s/a", *range(20, 23))
    write(store, "s/b", *range(12, 15))
    streams.scale("s/b", 1)  # while its logs are those of another open stream
    streams.truncate("s/b", copied.cut(middle))
    assert numbers(store, "s/b") == [*range(12, 15)]
    joined = streams.append(ab.StreamRange("s/a", end=middle), "s/b")
    assert numbers(store, "s/b") == [*range(15)]
    assert [int(store.fetch(joined.pointers(each)[0]).body) for each in pointers] == [*range(6)]
    with store.writer("s/b") as writer:
        writer.write(b"30", key="a").result()
        assert str(streams.rename("s/b", "s/c").name) == "s/c"
        writer.write(b"31", key="a").result()
    with pytest.raises(StreamRenamed):
        streams.seal("s/b")
    streams.stitch(["s/a", "s/c"], into="s/a", keep_sources=False, request="stitch")
    streams.stitch(["s/a", "s/c"], into="s/a", keep_sources=False, request="stitch")
    everything = [*range(12), *range(15), *range(20, 23), 30, 31]
    assert numbers(store, "s/a") == sorted(everything)
    order = [int(body) for body in by_key(events_of(store, "s/a"))["a"]]
    assert order == [0, 3, 6, 9, 21, 12, 0, 3, 6, 9, 30, 31]
    store.compact(force=True)
    store.scopes.copy("s", "t")
    with pytest.raises(StreamExists):
        streams.create("t/a")
    streams.delete("s/a")
    for _ in range(3):
        store.runtime.tasks.sleep(0.001)
        store.collect(horizon_us=0)
    assert numbers(store, "t/a") == sorted(everything)
    streams.rename("t/a", "t/b")
    streams.rename("t/b", "t/c")
    with pytest.raises(StreamRenamed, match="t/c"):
        streams.delete("t/a")
    streams.delete("t/c")
    for _ in range(4):
        store.runtime.tasks.sleep(0.001)
        store.collect(horizon_us=0)
    with store.catalog.reading() as reading:
        assert not any(reading.export(table) for table in ("spans", "extents", "blobs"))
        assert not any(name.scope == "t" for name, _ in reading.states(FORMER_NAME))


def test_the_cost_of_an_operation_does_not_depend_on_the_events(store: Store) -> None:
    """Rows of every table, before and after fifty commits and more."""
    streams = store.streams
    store.scopes.create("s")
    streams.create("s/a", scaling=2)
    tables = ("streams", "segments", "spans", "logs", "extents", "blobs", "aliases", "states", "changes")

    def rows() -> dict[str, int]:
        with store.catalog.reading() as reading:
            return {table: len(reading.export(table)) for table in tables}

    added = []
    for target in ("s/x", "s/y"):
        for n in range(2 if target == "s/x" else 50):
            write(store, "s/a", n, n + 1, n + 2)
        before = rows()
        streams.copy("s/a", target)
        streams.stitch(["s/a", "s/a"], into=f"{target}{target[-1]}")
        streams.rename(target, f"{target}-")
        after = rows()
        added.append({table: after[table] - before[table] for table in tables})
    assert added[0] == added[1]
    assert added[0]["extents"] == added[0]["blobs"] == 0
