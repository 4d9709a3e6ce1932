"""The end of a broker under load: what was acknowledged is there afterwards, whether it ends in order or is killed."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import anabranch as ab
from tests.parameters import rest_is_slow
from tests.server.kit import BrokerProcess
from tests.waiting import PATIENCE_S, until, until_ended

pytestmark = pytest.mark.process

CALLERS = 4
BEFORE = 60  # acknowledged events before the broker is ended
FOLLOWED = "/v1/streams/iot/a/events?follow&from=head&format=sse"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "river"
    with ab.connect(folder, create=True) as made:
        made.scopes.create("iot")
        made.streams.create("iot/a", scaling=2)
    return folder


def bodies(folder: Path) -> Counter[str]:
    """How often each event is in the stream."""
    with ab.connect(folder) as opened, opened.reader("iot/a", start=ab.HEAD, follow=False) as reader:
        return Counter(bytes(event.body).decode() for event in reader)


class HttpLoad:
    """Callers that append one event after another until the broker is gone, and note which were acknowledged."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.acknowledged: list[str] = []
        self.unanswered: list[str] = []
        self._url = f"{broker.http}/v1/streams/iot/a/events"
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        with httpx.Client(timeout=PATIENCE_S) as client:
            for count in range(1_000_000):
                event = f"{number}-{count}"
                try:
                    answer = client.post(self._url, content=event, headers=RAW)
                except httpx.TransportError:
                    self.unanswered.append(event)
                    return
                if answer.status_code == 503:
                    return
                assert answer.is_success, answer.text
                self.acknowledged.append(event)

    def wait(self) -> None:
        """Wait until the broker is gone for all."""
        until_ended(*self._threads)


def end(broker: BrokerProcess) -> int:
    return broker.end()


def kill(broker: BrokerProcess) -> int:
    broker.kill()
    return -signal.SIGKILL


@pytest.mark.parametrize("workers", rest_is_slow(["2", "1"]))
@pytest.mark.parametrize("ending", rest_is_slow([kill, end]))
def test_every_acknowledged_event_is_there_once(
    store: Path, tmp_path: Path, workers: str, ending: Callable[[BrokerProcess], int]
) -> None:
    with BrokerProcess(store, "--workers", workers, folder=tmp_path) as broker:
        load = HttpLoad(broker)
        until(lambda: len(load.acknowledged) >= BEFORE)
        assert ending(broker) in (0, -signal.SIGKILL)
        load.wait()
    found = bodies(store)
    assert set(load.acknowledged) <= found.keys() <= {*load.acknowledged, *load.unanswered}
    assert set(found.values()) == {1}
    with BrokerProcess(store, folder=tmp_path) as again:
        assert httpx.get(f"{again.http}/readyz").is_success
        assert again.end() == 0


def test_a_drained_broker_answers_the_appends_under_way(store: Path, tmp_path: Path) -> None:
    with BrokerProcess(store, folder=tmp_path) as broker:
        load = HttpLoad(broker)
        until(lambda: len(load.acknowledged) >= BEFORE)
        assert broker.end() == 0
        load.wait()
    # A caller whose next request met a closed connection can't know; nothing of it may have been appended.
    assert bodies(store).keys() == set(load.acknowledged)


def test_a_follower_learns_where_to_resume_and_misses_nothing(store: Path, tmp_path: Path) -> None:
    events = [str(number) for number in range(40)]
    seen: list[str] = []
    with BrokerProcess(store, folder=tmp_path) as broker, httpx.Client(timeout=PATIENCE_S) as client:
        for event in events[:20]:
            client.post(f"{broker.http}/v1/streams/iot/a/events", content=event, headers=RAW).raise_for_status()
        ended: list[int] = []
        ender = threading.Thread(target=lambda: ended.append(broker.end()))
        cut = ""
        with client.stream("GET", f"{broker.http}{FOLLOWED}") as answer:
            kind = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "problem":
                    told = json.loads(value)
                    assert told["code"] == "draining"
                    cut = told["cut"]
                elif name == "data":
                    seen.append(payload(value))
                    if len(seen) == 20:
                        ender.start()
        until_ended(ender)
        assert ended == [0] and cut
    with BrokerProcess(store, folder=tmp_path) as again, httpx.Client(timeout=PATIENCE_S) as client:
        for event in events[20:]:
            client.post(f"{again.http}/v1/streams/iot/a/events", content=event, headers=RAW).raise_for_status()
        with client.stream("GET", f"{again.http}{FOLLOWED}", headers={"last-event-id": cut}) as answer:
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "data":
                    seen.append(payload(value))
                if len(seen) >= len(events):
                    break
        assert again.end() == 0
    assert Counter(seen) == Counter(events)


RAW = {"content-type": "application/octet-stream"}


def payload(data: str) -> str:
    found = json.loads(data)
    return str(found["payload"])


@pytest.mark.slow
def test_a_client_by_flight_can_do_all_of_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "river", folder=tmp_path) as broker:
        with ab.connect(broker.addresses["flight"]) as remote:
            remote.scopes.create("iot")
            remote.streams.create("iot/a")
            with remote.writer("iot/a") as writer:
                acks = [writer.write(str(number).encode(), key="k") for number in range(100)]
            for ack in acks:
                ack.result(PATIENCE_S)
        assert broker.end() == 0
    assert bodies(tmp_path / "river").keys() == {str(number) for number in range(100)}
