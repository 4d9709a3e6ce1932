"""Consumers who take nothing: each holds little memory of the broker, delays nobody, and is closed after a time."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyarrow import flight

import anabranch as ab
from anabranch import limits
from anabranch.wire.commands import pack
from anabranch.wire.v1 import anabranch_pb2, store_pb2
from tests.server.grpc.client import Client
from tests.server.kit import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.process
EVENTS, EVENT_BYTES = 24_000, 1_000
PATH = "/v1/streams/s/a/events"
Stall = Callable[[BrokerProcess, ExitStack], None]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of 24 MB in small commits, which a reader puts together to as large batches as it may."""
    folder = tmp_path_factory.mktemp("stalled") / "river"
    with ab.connect(folder, create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/a")
        with made.writer("s/a") as writer:
            for start in range(0, EVENTS, 500):
                payloads = [b"%6d" % n + os.urandom(EVENT_BYTES) for n in range(start, start + 500)]
                writer.write_batch(pa.table({"payload": payloads, "key": ["k"] * 500}))
    return folder


@pytest.fixture(scope="module")
def broker(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(store, folder=tmp_path_factory.mktemp("patient")) as process:
        yield process


def connected(broker: BrokerProcess, query: str, headers: str = "", status: int = 200) -> socket.socket:
    """A connection that has sent its request, and has the first bytes of the answer."""
    made = socket.create_connection(("127.0.0.1", httpx.URL(broker.http).port or 0))
    made.sendall(f"GET {PATH}?{query} HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode())
    assert made.recv(64).startswith(f"HTTP/1.1 {status}".encode())
    return made


def websocket(broker: BrokerProcess) -> socket.socket:
    """The same, as a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    return connected(broker, "", f"{upgrade}Sec-WebSocket-Key: {key}\r\n", 101)


def by_websocket(broker: BrokerProcess, held: ExitStack) -> None:
    held.enter_context(websocket(broker))


def by_http(query: str) -> Stall:
    def stall(broker: BrokerProcess, held: ExitStack) -> None:
        held.enter_context(connected(broker, query))

    return stall


def by_flight(broker: BrokerProcess, held: ExitStack) -> None:
    client = flight.FlightClient(broker.addresses["flight"].replace("anabranch://", "grpc://"))
    call = client.do_get(flight.Ticket(pack(anabranch_pb2.ReadCommand(stream="s/a", follow=True))))
    call.read_chunk()
    held.callback(client.close)
    held.callback(call.cancel)


def by_grpc(broker: BrokerProcess, held: ExitStack) -> None:
    call = held.enter_context(Client(broker.addresses["grpc"])).Follow(store_pb2.FollowRequest(stream="s/a"))
    next(call)
    held.callback(call.cancel)


def by_remote_reader(broker: BrokerProcess, held: ExitStack) -> None:
    client = held.enter_context(ab.connect(broker.addresses["flight"]))
    reader = held.enter_context(client.reader("s/a", follow=True))
    next(iter(reader.batches()))


@pytest.mark.parametrize(
    "stall",
    [
        pytest.param(by_http("follow&format=sse"), id="server-sent events"),
        pytest.param(by_http("follow"), id="lines", marks=pytest.mark.slow),
        pytest.param(by_websocket, id="websocket", marks=pytest.mark.slow),
        pytest.param(by_http("format=ndjson"), id="a long answer", marks=pytest.mark.slow),
        pytest.param(by_flight, id="flight", marks=pytest.mark.slow),
        pytest.param(by_grpc, id="grpc", marks=pytest.mark.slow),
        pytest.param(by_remote_reader, id="remote reader", marks=pytest.mark.slow),
    ],
)
def test_a_consumer_who_takes_nothing_holds_little_memory_and_delays_nobody(
    broker: BrokerProcess, stall: Stall
) -> None:
    count = 4
    with ExitStack() as held:
        stall(broker, held)  # what the process needs once, for the first of its kind
        before = settled(broker)
        for _ in range(count):
            stall(broker, held)
        each = (settled(broker) - before) / count
        with httpx.stream("GET", f"{broker.http}{PATH}?follow&from=tail", timeout=60) as other:
            httpx.post(f"{broker.http}{PATH}", content=b"now", timeout=60)
            assert '"now"' in next(other.iter_lines())
    assert each < 2 * limits.CONNECTION_BYTES_MAX, f"{each / 1e6:.1f} MB each"


@pytest.mark.slow
def test_a_consumer_who_takes_nothing_for_too_long_is_closed_and_resumes_at_its_last_cut(
    store: Path, tmp_path: Path
) -> None:
    with BrokerProcess(store, "--set", "send_timeout_s=0.5", folder=tmp_path) as broker:
        stalled = connected(broker, "follow&format=sse&from=head")
        until(lambda: "read nothing for 0.5 s" in broker.log.read_text())
        entry = next(each for each in broker.records() if each.get("closed"))
        assert (entry["path"], entry["closed"]) == (PATH, "the caller read nothing for 0.5 s")
        received = b""
        with stalled:
            try:
                while part := stalled.recv(1 << 16):
                    received += part
            except ConnectionResetError:  # what was on its way is lost with it
                pass
        found = re.findall(rb"id: (\S+)\ndata: (\{[^\n]*\})\n\n", received)
        headers = {"Last-Event-ID": found[-1][0].decode()} if found else {}
        url = f"{broker.http}{PATH}?follow&format=sse&from=head"
        with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("data: "))
            assert f"{len(found):6d}".encode() == payload_of(next(lines))


@pytest.mark.slow
def test_a_socket_whose_caller_takes_nothing_is_closed(store: Path, tmp_path: Path) -> None:
    with BrokerProcess(store, "--set", "send_timeout_s=0.5", folder=tmp_path) as broker, websocket(broker):
        until(lambda: "read nothing for 0.5 s" in broker.log.read_text())
        entry = next(each for each in broker.records() if each.get("closed"))
        assert (entry["path"], entry["status"]) == (PATH, 101)
        assert entry["sent"] > 100_000


def payload_of(line: str) -> bytes:
    """The number of an event, from its line of server-sent events."""
    event = json.loads(line.removeprefix("data: "))
    coded = event.get("payload_base64")
    return (base64.b64decode(coded) if coded else event["payload"].encode())[:6]


def settled(broker: BrokerProcess) -> int:
    """The memory of the broker's processes in bytes, without what they map of files, once it no longer changes."""
    seen: list[int] = []

    def same() -> bool:
        seen.append(memory(broker.process.pid))
        return len(seen) > 40 and max(seen[-40:]) - min(seen[-40:]) < 1_000_000

    until(same)
    return seen[-1]


def memory(pid: int) -> int:
    """Of a process and those that it started."""
    found = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own = int(re.findall(r"^Anonymous: +(\d+) kB", found, re.MULTILINE)[0]) * 1024
    started: list[str] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            started += (thread / "children").read_text().split()
    return own + sum(memory(int(each)) for each in started)
