"""What reading history through a broker adds: other brokers, times by the client's rules, ranges without credentials."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Closed, NotRemote
from anabranch.runtime.settings import Settings
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store

ROWS = 256
ROW_BYTES = 128 * 1024  # so that the range has many times what a broker sends ahead


def written(store: Store) -> None:
    store.scopes.create("s")
    store.streams.create("s/a", schema=pa.schema([("n", pa.int64()), ("body", pa.binary())]))
    store.write("s/a", pa.table({"n": range(ROWS), "body": [bytes(ROW_BYTES)] * ROWS}))


def test_a_range_goes_on_at_another_broker_behind_the_last_event_with_the_same_columns(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as embedded:
        written(embedded)
        broker, other = (Broker(embedded, OpenGuard()) for _ in range(2))
        with (
            FlightService(broker) as one,
            FlightService(other) as two,
            ab.connect(f"anabranch://127.0.0.1:{one.port},127.0.0.1:{two.port}") as store,
        ):
            (part,) = store.history("s/a").ranges(bytes_max=1 << 30)
            assert part.events == ROWS
            batches = part.batches()
            found = [next(batches)]
            embedded.streams.add_columns("s/a", {"more": pa.int64()})
            one.drain(0.0)
            found += batches
            table = pa.Table.from_batches(found)
            assert table["_offset"].to_pylist() == list(range(part.start, part.stop))
            assert table["n"].to_pylist() == list(range(part.start, part.stop))
            assert len(found) > 4
            assert store.connection.place.endswith(str(two.port))  # type: ignore[attr-defined]


def test_the_files_of_history_are_not_a_broker_s_to_list(remote: Store) -> None:
    remote.scopes.create("s")
    remote.streams.create("s/a")
    with pytest.raises(NotRemote, match=r"does not list them.*read ranges"):
        remote.history("s/a").files()


def test_a_time_without_a_zone_is_one_of_the_client_s_zone(address: str, embedded: Store) -> None:
    embedded.scopes.create("s")
    embedded.streams.create("s/a", schema=pa.schema([("at", pa.timestamp("us", tz="UTC"))]), time="at")
    with embedded.writer("s/a") as writer:
        for hour in range(4):
            writer.write({"at": datetime(2026, 1, 1, hour, tzinfo=UTC)}).result()
    with ab.connect(address, settings=Settings(time_zone="Europe/Berlin")) as store:
        history = store.history("s/a")
        assert sum(part.events for part in history.ranges("2026-01-01T03:00:00", by="event")) == 2
        with store.reader("s/a", start="2026-01-01T03:00:00", by="event") as reader:
            assert len(list(reader)) == 2


def test_a_range_carries_no_token_and_is_not_read_through_a_closed_store(address: str, embedded: Store) -> None:
    written(embedded)
    with ab.connect(address, token="very-secret") as store:
        part = store.history("s/a").ranges()[0]
        batches = part.batches(["n"])
        next(batches)
    assert b"very-secret" not in pickle.dumps(part)
    with pytest.raises(Closed):
        list(batches)
    with pytest.raises(Closed):
        next(part.batches())
    assert pickle.loads(pickle.dumps(part)).to_arrow(["n"]).num_rows == part.events
