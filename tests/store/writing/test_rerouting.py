"""Splits and merges under writers: nobody notices, nothing is lost or doubled, and each key keeps its order."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Closed, CorruptCatalog
from anabranch.model.ids import LogId
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.store.helpers import Rig, bodies_of, by_key, events_of, sound
from tests.waiting import PATIENCE_S, until, until_ended

PER_WRITER = 600
SCALES = 12
KEYS = 6


def write(store: Store, name: int, seed: int, failures: list[BaseException]) -> None:
    """Events `0, 1, …`, each under one of a few keys of this writer: alone, in batches, in atomic ones. Waits for the
    scales here and there, so that they lie among its events however fast either is."""
    rng = random.Random(seed)
    try:
        with store.writer("s/raw", writer_id=f"w{name}" if name % 2 else None) as writer:
            number = 0
            while number < PER_WRITER:
                count = min(rng.choice((1, 1, 1, 7, 25)), PER_WRITER - number)
                numbers = range(number, number + count)
                keys, bodies = [f"{name}-{n % KEYS}" for n in numbers], [b"%d" % n for n in numbers]
                if count == 1:
                    ack: ab.Ack | ab.BatchAck = writer.write(bodies[0], key=keys[0])
                else:
                    ack = writer.write_batch(pa.table({"key": keys, "payload": bodies}), atomic=rng.random() < 0.4)
                number += count
                if rng.random() < 0.15:
                    ack.result()
                wanted = number * SCALES // PER_WRITER
                until(lambda wanted=wanted: store.streams.get("s/raw").epoch >= wanted)  # type: ignore[misc]
    except BaseException as exc:
        failures.append(exc)


def follow(reader: ab.Reader, seen: list[ab.Event]) -> None:
    with suppress(Closed):
        seen.extend(reader)


def scale(store: Store, rng: random.Random) -> None:
    current = store.streams.view("s/raw").current
    at = rng.randrange(len(current))
    if at and rng.random() < 0.5:
        store.streams.scale("s/raw", merge=[current[at - 1].id, current[at].id])
    elif len(current) < 10:
        store.streams.scale("s/raw", split=current[at].id, into=rng.choice((2, 3)))
    else:
        store.streams.scale("s/raw", rng.choice((1, 2, 4)))


@pytest.mark.parametrize("inline_bytes_max", [64 * 1024, 0])
def test_writers_and_readers_go_on_across_splits_and_merges(tmp_path: Path, inline_bytes_max: int, seed: int) -> None:
    rng = random.Random(seed)
    settings = Settings(inline_bytes_max=inline_bytes_max, commit_bytes_max=3_000, pipeline_bytes_min=200)
    failures: list[BaseException] = []
    seen: list[ab.Event] = []
    with ab.connect(tmp_path / "river", settings=settings, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw", scaling=2)
        reader = store.reader("s/raw", follow=True)
        follower = threading.Thread(target=follow, args=(reader, seen))
        writers = [
            threading.Thread(target=write, args=(store, name, rng.randrange(1 << 32), failures)) for name in range(4)
        ]
        for thread in (follower, *writers):
            thread.start()
        while any(thread.is_alive() for thread in writers):
            scale(store, rng)
            time.sleep(0.01)
        assert not failures
        expected = {
            f"{name}-{key}": [b"%d" % n for n in range(key, PER_WRITER, KEYS)]
            for name in range(4)
            for key in range(KEYS)
        }
        assert store.streams.get("s/raw").epoch >= SCALES
        assert by_key(events_of(store, "s/raw")) == expected
        until(lambda: len(seen) >= 4 * PER_WRITER)
        reader.close()
        until_ended(follower)
        assert by_key(seen) == expected
        assert sound(store)
        store.compact(force=True)
        assert by_key(events_of(store, "s/raw")) == expected


def test_a_writer_whose_open_segment_lies_in_a_sealed_log_says_so_and_goes_on_once_that_is_mended() -> None:
    with Rig() as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        writer.write(b"0").result()

        def mark(*, sealed: bool) -> None:
            with rig.catalog.writing() as txn:
                (log,) = txn.logs_after(LogId(0), 10)
                txn.update_log(replace(log, sealed=sealed))

        mark(sealed=True)
        acks = [writer.write(b"1"), writer.write(b"2")]
        for ack in acks:
            with pytest.raises(CorruptCatalog, match="anabranch check s/raw"):
                ack.result(PATIENCE_S)
        mark(sealed=False)
        assert writer.write(b"3").result().offset == 1
        writer.close()  # raises no refusal that was raised before
        assert bodies_of(rig.store, "s/raw") == [b"0", b"3"]


def test_what_a_seal_sent_back_goes_before_newer_events_of_its_key(tmp_path: Path) -> None:
    """The events that were on their way when the segment was sealed come first."""
    settings = Settings(inline_bytes_max=0, commit_bytes_max=500, pipeline_bytes_min=1)
    with ab.connect(tmp_path / "river", settings=settings, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw")
        with store.writer("s/raw") as writer:
            for round_ in range(20):
                for i in range(30):
                    writer.write_batch(pa.table({"key": ["a"], "payload": [b"%d" % (30 * round_ + i)]}))
                store.streams.scale("s/raw", 2 - round_ % 2)
        assert [event.body for event in events_of(store, "s/raw")] == [b"%d" % i for i in range(600)]
        assert sound(store)
