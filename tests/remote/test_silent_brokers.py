"""A broker that is stopped (SIGSTOP) answers nothing, though its machine accepts connections: calls go on at the next
broker, or fail."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import StoreUnavailable
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.server.kit import NO_GRPC, BrokerProcess
from tests.waiting import PATIENCE_S

SILENT_S = 2 * limits.BROKER_SILENT_S
SLACK_S = 3.0  # of a machine that does other things, too


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
    with ExitStack() as stack:
        found = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            found.append(stack.enter_context(BrokerProcess(tmp_path / "store", *NO_GRPC, folder=tmp_path / name)))
        yield found


def address(*brokers: BrokerProcess) -> str:
    return "anabranch://" + ",".join(each.addresses["flight"].removeprefix("anabranch://") for each in brokers)


@pytest.mark.process
def test_calls_of_every_kind_go_on_at_the_next_broker(brokers: list[BrokerProcess]) -> None:
    with ab.connect(address(*brokers)) as store, store.writer("s/a") as writer:
        follower, bounded = store.reader("s/a", follow=True), store.bytes("s/file", "xb")
        events = iter(follower)
        writer.write(b"1").result()
        assert next(events).body == b"1"
        bounded.write(b"a")
        bounded.flush()
        group = store.groups.open("s/group", streams=["s/a"])
        member = group.reader("r")
        assert [event.body for event in (next(iter(member)),)] == [b"1"]
        waiting = threading.Thread(target=lambda: store.jobs.list(), daemon=True)

        brokers[0].signal(signal.SIGSTOP)
        begun = time.monotonic()
        waiting.start()
        ack = writer.write(b"2")
        bounded.write(b"b")
        assert store.streams.get("s/a").name.name == "a"
        assert time.monotonic() - begun < SILENT_S + SLACK_S
        waiting.join(SLACK_S)
        assert not waiting.is_alive()
        ack.result(SLACK_S)
        assert next(events).body == b"2"
        bounded.flush()
        assert store.connection.generation == 1, "of all calls, one changes the broker"  # type: ignore[attr-defined]
        member.close()
        assert time.monotonic() - begun < 2 * (SILENT_S + SLACK_S)
        follower.close()
        bounded.close()
        with store.reader("s/a") as reader:
            assert [event.body for event in reader] == [b"1", b"2"]
        with store.bytes("s/file") as file:
            assert file.read() == b"ab"


@pytest.mark.slow
@pytest.mark.process
def test_a_client_that_meets_a_silent_broker_first_uses_the_next_one(brokers: list[BrokerProcess]) -> None:
    brokers[0].signal(signal.SIGSTOP)
    begun = time.monotonic()
    with ab.connect(address(*brokers)) as store:
        assert store.streams.exists("s/a")
    assert time.monotonic() - begun < SILENT_S + SLACK_S


@pytest.mark.slow
@pytest.mark.process
def test_the_calls_of_a_client_without_another_broker_fail(
    brokers: list[BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BROKER_ALONE_SILENT_S", 1.0)
    with ab.connect(address(brokers[0]), settings=Settings(catalog_lock_s=1.0)) as store:
        assert store.streams.exists("s/a")
        with store.reader("s/a", follow=True) as follower:
            brokers[0].signal(signal.SIGSTOP)
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.streams.exists("s/a")
            with pytest.raises(StoreUnavailable):
                follower.read(PATIENCE_S)
        assert time.monotonic() - begun < 15


@pytest.mark.slow
def test_a_call_that_waits_for_long_is_not_taken_for_a_nuisance(
    address: str, embedded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC servers hang up on clients that ask for signs of life without calling anything."""
    monkeypatch.setattr(limits, "BROKER_ALONE_SILENT_S", 1.0)
    embedded.scopes.create("s")
    embedded.streams.create("s/a")
    with ab.connect(address) as store, store.reader("s/a", follow=True) as follower:
        assert follower.read(5.0) is None
        assert store.connection.generation == 0  # type: ignore[attr-defined]
