"""Reading stored events: as Arrow batches compared with pyarrow alone, and as Python events compared with other
systems' clients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

import pyarrow as pa

import anabranch as ab
from anabranch.blobs.layout import read_index
from bench import peers
from bench.floors import read_messages, touch
from bench.measure import Rounds, in_turn, seconds
from bench.payloads import PAYLOAD_BYTES, keys, payloads, raw_table, rows_for
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import blob_files, fresh

SEGMENTS = 8
ARROW = Target(Bound.AT_LEAST, 0.7)
EVENTS = {"redis": Target(Bound.AT_LEAST, 5.0)}


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Reads a stream of tier-1 blobs in the page cache from head to tail, repeatedly."""
    folder = setting.folder / "store"
    rows, tables = rows_for(setting.scaled(16, 1)), setting.scaled(32, 2)
    with fresh(folder, segments=SEGMENTS) as store, store.writer("bench/events") as writer:
        for number in range(tables):
            writer.write_batch(raw_table(rows, number))
    return [*_as_arrow(setting, folder, rows * tables), *_as_events(setting)]


def _as_arrow(setting: BenchmarkSetting, folder: Path, count: int) -> list[Result]:
    messages = _messages(folder)
    rounds = setting.scaled(9, 2)
    with ab.connect(folder, create=True) as store:
        schema = store.streams.get("bench/events").schema.columns

        def ours() -> float:
            return count / 1e6 / seconds(lambda: _consume(store, count))

        def bare() -> float:
            return count / 1e6 / seconds(lambda: _touch_all(read_messages(messages, schema), count))

        def first() -> float:
            with ab.connect(folder, create=True) as fresh_store:
                return count / 1e6 / seconds(lambda: _consume(fresh_store, count))

        ours(), bare()
        repeated = in_turn(rounds, ours, bare)
        unverified = in_turn(setting.scaled(5, 1), first, bare)
        handed = in_turn(
            rounds,
            lambda: count / 1e6 / seconds(lambda: _consume(store, count, look=False)),
            lambda: count / 1e6 / seconds(lambda: read_messages(messages, schema)),
        )
    touched = "both sides read every byte of the payloads; files in the page cache"
    return [
        _line("as Arrow, repeated passes", repeated, ARROW, (touched, "checksums verified by an earlier pass")),
        _line("as Arrow, a process's first pass", unverified, ARROW, (touched, "ours verifies every checksum")),
        _line(
            "as Arrow, batches handed over and not looked at",
            handed,
            None,
            ("neither side reads a payload: what is left is our planning and the three added columns",),
        ),
    ]


def _line(what: str, rounds: Rounds, target: Target | None, notes: tuple[str, ...]) -> Result:
    return Result(
        "catch_up",
        f"catch-up read {what}",
        "M events/s",
        median(rounds.ours),
        median(rounds.other),
        "pyarrow reading the same memory-mapped batches",
        rounds.ratio,
        rounds.spread,
        target,
        notes,
    )


def _consume(store: ab.Store, count: int, *, look: bool = True) -> None:
    found = 0
    with store.reader("bench/events", start=ab.HEAD) as reader:
        for batch in reader.batches():
            found += batch.num_rows
            if look:
                touch(batch)
    assert found == count


def _touch_all(batches: list[pa.RecordBatch], count: int) -> None:
    for batch in batches:
        touch(batch)
    assert sum(batch.num_rows for batch in batches) == count


def _messages(folder: Path) -> list[tuple[Path, list[tuple[int, int]]]]:
    """Returns where the record batches are in the store's blobs."""
    places = []
    for path in blob_files(folder):
        with pa.memory_map(str(path)) as file:
            index = read_index(path.name, file.read_buffer(), verify=False)
        places.append((path, [(part["at"], part["length"]) for part in index["parts"]]))
    return places


def _as_events(setting: BenchmarkSetting) -> list[Result]:
    count = setting.scaled(400_000, 2_000)
    bodies, names = payloads(count, 1), keys(count, 1)
    folder = setting.folder / "events"
    results: list[Result] = []
    with fresh(folder, segments=SEGMENTS) as store, store.writer("bench/events") as writer:
        for body, key in zip(bodies, names, strict=True):
            writer.write(body, key=key)
        writer.flush()

        def ours() -> float:
            return count / 1e6 / seconds(lambda: _iterate(store, count))

        ours()
        missing: list[str] = []
        with closing(peers.each(setting, missing)) as running:
            for peer in running:
                peer.write(bodies, names)

                def theirs(peer: peers.Peer = peer) -> float:
                    found, took = peer.read()
                    assert found == count, f"{peer.name} returned {found} of {count} events"
                    return found / 1e6 / took

                rounds = in_turn(setting.scaled(5, 1), ours, theirs)
                results.append(
                    Result(
                        "catch_up",
                        f"catch-up read as Python events, beside {peer.version()}",
                        "M events/s",
                        median(rounds.ours),
                        median(rounds.other),
                        peer.read_style,
                        rounds.ratio,
                        rounds.spread,
                        EVENTS.get(peer.name),
                        (f"key and {PAYLOAD_BYTES} bytes of payload touched for each event",),
                    )
                )
        if not any(result.target for result in results):
            alone = median(ours() for _ in range(setting.scaled(5, 1)))
            what = "catch-up read as Python events"
            results.append(Result("catch_up", what, "M events/s", alone, target=EVENTS["redis"], notes=tuple(missing)))
        elif missing:
            results[0] = results[0].with_notes(*missing)
    return results


def _iterate(store: ab.Store, count: int) -> None:
    found = 0
    with store.reader("bench/events", start=ab.HEAD) as reader:
        for event in reader:
            if event.key is not None and event.body is not None:
                found += 1
    assert found == count


FIGURE = Benchmark("catch_up", "catch-up read", run)
