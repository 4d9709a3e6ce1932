"""What a host writes about a query that it runs, written by hand, so that a test starts no Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from anabranch.catalog.state.pipeline import PIPELINE, PipelineOutput, Restart, StoredPipeline
from anabranch.catalog.state.query import QueryLease, QueryState
from anabranch.deployments import hosting
from anabranch.model.ids import Micros
from anabranch.store import Store

RESULT = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])


class Hosted:
    """A query of a store, in the hands of a host."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        now = store.runtime.clock.now()
        lease = QueryLease("host", 4711, "host-1", Micros(now + 3_600_000_000))
        row = hosting.claim(store.catalog, name, lease, now=now)
        assert row is not None
        self._epoch = row.epoch

    def report(self, state: QueryState, error: str | None = None) -> None:
        """Its state, as of now."""
        hosting.update(self._store.catalog, self._name, self._epoch, lambda row: replace(row, state=state, error=error))

    def prepare(self, *targets: str, progress: tuple[dict[str, Any], ...] = ()) -> None:
        """The statements have been read: they feed these streams."""
        now = self._store.runtime.clock.now()
        outputs = tuple(PipelineOutput(target, None, ("iot/sensors",), 1, "f") for target in targets)
        row = StoredPipeline(self._name, "", outputs, 1, True, Restart(), "running", now, now, now, progress=progress)
        with self._store.catalog.writing() as txn:
            txn.put_state(PIPELINE, self._name, row)

    def create(self, target: str) -> None:
        """The first run has created the stream of the results."""
        self._store.scopes.create(target.partition("/")[0], exist_ok=True)
        self._store.streams.create(target, schema=RESULT, key="device", time="at", scaling=2)

    def publish(self, target: str, numbers: range) -> None:
        """Append results."""
        rows = [{"device": f"d{n % 3}", "at": n * 1_000_000, "n": n} for n in numbers]
        self._store.write(target, pa.Table.from_pylist(rows, schema=RESULT))
