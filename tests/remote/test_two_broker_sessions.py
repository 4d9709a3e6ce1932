"""Two broker processes over one store: one is killed, and everything that it held goes on at the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.store import Store
from tests.server.kit import BrokerProcess
from tests.waiting import PATIENCE_S, until

EVENTS = 8_000


@contextmanager
def two_brokers(folder: Path) -> Iterator[tuple[Store, BrokerProcess]]:
    """A store by two brokers, and the one that is used first."""
    with ab.connect(folder / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
        store.streams.create("s/out")
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    with (
        BrokerProcess(folder / "store", folder=folder / "one") as one,
        BrokerProcess(folder / "store", folder=folder / "two") as two,
    ):
        places = [each.addresses["flight"].removeprefix("anabranch://") for each in (one, two)]
        with ab.connect("anabranch://" + ",".join(places)) as remote:
            yield remote, one


@pytest.mark.slow
@pytest.mark.process
def test_kill_9_in_mid_group_read_and_mid_transaction_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with two_brokers(tmp_path) as (store, used):
        heard: list[ab.Notification] = []
        store.notifications.listen(heard.append, start=ab.HEAD, name="listener")
        shared = store.shared.synchronizer("s/count", initial=0)
        with store.transaction() as transaction:
            writer = transaction.writer("s/a")
            for number in range(EVENTS):
                writer.write(b"%d" % number, key=f"k{number % 10}")
            transaction.flush()
        group = store.groups.open("s/g", streams="s/a", end="tail")
        with group.reader("r", delivery="exactly_once", batch_rows=1_000) as reader:
            second = store.transaction()
            second.writer("s/out").write(b"-1")
            second.flush()
            second.writer("s/out").write(b"-2")
            for count, batch in enumerate(reader.batches(), 1):
                if count == 3:
                    used.kill()  # with a batch that is not committed, and events that are not flushed
                reader.commit({"s/out": batch.select(["key", "time", "payload"])})
                shared.update(lambda committed: committed + 1)
            second.commit()
        assert group.unread().events == 0
        assert group.readers == []
        assert shared.fetch() == count
        store.streams.scale("s/a", 3)
        until(lambda: any(each.kind == "scaled" for each in heard))
        assert [each.id for each in heard] == sorted({each.id for each in heard})
    with ab.connect(tmp_path / "store") as embedded, embedded.reader("s/out", end="tail") as out:
        assert sorted(int(event.body) for event in out) == [-2, -1, *range(EVENTS)]
        assert list(embedded.check()) == []


@pytest.mark.slow
@pytest.mark.process
def test_sessions_begin_at_the_broker_that_is_left(tmp_path: Path) -> None:
    with two_brokers(tmp_path) as (store, used):
        group = store.groups.open("s/g", streams="s/a")
        used.kill()
        with store.transaction() as transaction:
            transaction.writer("s/a").write(b"1")
        with group.reader("r") as reader:
            assert reader.read(PATIENCE_S).column("payload").to_pylist() == [b"1"]  # type: ignore[union-attr]
