"""What tests of jobs share: a stream that has been through much, and all that can be seen of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.transfer.jobs.job import Job
from tests import s3_server
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import HookedBlobs
from tests.waiting import PATIENCE_S, until, until_ended

SETTINGS = Settings(inline_bytes_max=512)  # so that blobs are written too
SCHEMA = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
WIDER = pa.schema([*SCHEMA, ("note", pa.string())])


@contextmanager
def opened(kind: str, folder: Path, **options: Any) -> Iterator[Store]:
    """A new store: `folder`, `postgres`, `s3` or `memory`."""
    if kind == "postgres":
        url = fresh_url()
        try:
            with ab.connect(url, blobs=folder, settings=SETTINGS, **options, create=True) as store:
                yield store
        finally:
            drop(url)
        return
    where: dict[str, Any] = {"blobs": s3_server.fresh_url()} if kind == "s3" else {}
    with ab.connect(
        "memory://" if kind == "memory" else folder, settings=SETTINGS, **where, **options, create=True
    ) as store:
        yield store


def small_ranges(patch: pytest.MonkeyPatch) -> None:
    """Ranges and steps so small that a few hundred events make many of each."""
    patch.setattr(limits, "JOB_RANGE_BYTES", 2 * limits.KIB)
    patch.setattr(limits, "JOB_BLOB_BYTES", limits.KIB)
    patch.setattr(limits, "JOB_BUNDLE_RANGES_MAX", 2)


def live(store: Store, name: str = "s/a") -> None:
    """A stream that was scaled, evolved, truncated and compacted, all tiers and inlined events among its bytes."""
    scope = name.partition("/")[0]
    store.scopes.create(scope, exist_ok=True)
    store.streams.create(name, schema=SCHEMA, key="device", time="at", scaling=2, tags={"owner": "me"})
    fill(store, name, 0, 60)
    store.streams.truncate(name, store.cuts.tail(name))
    fill(store, name, 60, 160)
    store.streams.scale(name, 3)
    fill(store, name, 160, 260)
    store.compact(force=True)
    store.streams.evolve(name, WIDER)
    fill(store, name, 260, 340, note="wide")
    store.streams.scale(name, 2)
    fill(store, name, 340, 440, note="last")


def fill(store: Store, name: str, first: int, stop: int, **columns: Any) -> None:
    """Append events in batches of several sizes."""
    with store.writer(name) as writer:
        n = first
        while n < stop:
            count = min(stop - n, 1 + n % 37)
            rows = [
                {"device": f"d{i % 7}", "at": 1_700_000_000_000_000 + i, "n": i, **columns} for i in range(n, n + count)
            ]
            schema = store.streams.get(name).schema.columns
            writer.write_batch(pa.Table.from_pylist(rows, schema=schema)).result()
            n += count


def image(store: Store, name: str) -> dict[str, Any]:
    """All that a copy has in common with its source: segments, schemas, tags, and each event with its place, its
    append time and its columns."""
    view = store.streams.view(name)
    with store.catalog.reading() as reading:
        versions = range(1, view.info.schema_version + 1)
        schemas = [reading.schema(view.info.id, version) for version in versions]
    events = {}
    with store.reader(name) as reader:
        for event in reader:
            place = (str(event.pointer.segment), event.pointer.offset)
            assert place not in events, f"{place} was read twice"
            events[place] = (event.key, event.appended_us, event.time_us, event.body)
    return {
        "segments": [(s.id, s.range, s.head, view.length(s.id)) for s in view.ordered],
        "retired": [s.retired for s in view.ordered],
        "schemas": schemas,
        "tags": dict(view.info.tags),
        "epoch": (view.info.epoch, view.info.next_number),
        "events": events,
    }


class Gate:
    """Stops a store's blobs at the `after`th put until it is opened."""

    def __init__(self, store: Store, after: int) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self._left = after
        self._hook = HookedBlobs(store.blobs)
        self._hook.before_put = self._pass
        store.blobs = self._hook
        store.jobs._job_store = store.job_store

    def wait(self) -> None:
        """Wait until something stands at it."""
        assert self.reached.wait(PATIENCE_S)

    def _pass(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.reached.set()
            assert self.open.wait(PATIENCE_S)


def stop_at(gate: Gate, job: Job, stop: Callable[[], object]) -> None:
    """Have the job told to stop while it stands at its gate, and wait until it has."""
    gate.wait()
    stopping = threading.Thread(target=stop)
    stopping.start()
    until(lambda: job.row().wanted is not None)
    gate.open.set()
    until_ended(stopping)
