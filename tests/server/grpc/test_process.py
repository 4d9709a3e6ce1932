"""gRPC as a process of a broker: its port, its counts and log, its replacement and its end, TLS and tokens."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from anabranch.wire.v1 import store_pb2 as v1
from tests.cli.kit import Line, environment
from tests.server.grpc.client import Client, error_of
from tests.server.kit import BrokerProcess
from tests.server.workers_of import children
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process


def create(client: Client, stream: str = "iot/a") -> None:
    for verb, name in (("scopes.create", stream.partition("/")[0]), ("streams.create", stream)):
        list(client.Call(v1.CallRequest(verb=verb, arguments=f'{{"name": "{name}"}}'.encode())))


def append(client: Client, payload: bytes, stream: str = "iot/a") -> Any:
    return client.Append(v1.AppendRequest(stream=stream, events=[v1.Event(payload=payload)]))


def test_flight_and_grpc_share_no_process(broker: BrokerProcess) -> None:
    (child,) = children(broker.process.pid)
    assert "_flight" not in Path(f"/proc/{child}/maps").read_text()
    assert "cygrpc" not in Path(f"/proc/{broker.process.pid}/maps").read_text()


@pytest.mark.slow
def test_a_second_broker_on_the_port_is_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    port = broker.addresses["grpc"].rpartition(":")[2]
    free = [word for name in ("flight", "http") for word in (f"--{name}-port", "0")]
    command = Line(tmp_path / "river").command("serve", *free, "--grpc-port", port)
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=20, check=False)
    assert done.returncode == 2
    told = done.stderr.decode().splitlines()[-1]
    assert f"can't serve gRPC on 127.0.0.1, port {port}: the port is taken" in told


def test_calls_are_counted_and_logged(broker: BrokerProcess, client: Client) -> None:
    create(client, "counted/a")
    append(client, b"x", "counted/a")
    with pytest.raises(grpc.RpcError):
        append(client, b"x", "counted/none")
    text = httpx.get(f"{broker.http}/metrics").text
    for outcome in ("ok", "refused"):
        (line,) = [
            line
            for line in text.splitlines()
            if line.startswith(f'anabranch_broker_calls_total{{front_end="grpc",outcome="{outcome}"}}')
        ]
        assert int(line.rpartition(" ")[2]) >= 1, line

    def logged() -> list[str]:
        return [each["outcome"] for each in broker.records() if each.get("method") == "Append"]

    until(lambda: {"ok", "refused"} <= set(logged()))


@pytest.mark.slow
def test_a_killed_process_is_replaced_on_the_same_port_and_followers_learn_of_the_end(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "river", folder=tmp_path) as broker,
        Client(broker.addresses["grpc"]) as client,
    ):
        create(client)
        append(client, b"a")
        (first,) = children(broker.process.pid)
        os.kill(first, signal.SIGKILL)
        until(lambda: children(broker.process.pid) not in ([], [first]))

        def alive() -> bool:
            try:
                return bool(append(client, b"b").events)
            except grpc.RpcError:
                return False

        until(alive)
        parts = client.Follow(v1.FollowRequest(stream="iot/a"), timeout=PATIENCE_S)

        def requests() -> Any:  # a caller who is silent, and never ends his stream
            yield v1.AppendStreamRequest(append=v1.AppendRequest(stream="iot/a", events=[v1.Event(payload=b"c")]))
            threading.Event().wait(PATIENCE_S)

        answers = client.AppendStream(requests(), timeout=PATIENCE_S)
        next(answers)
        seen: list[bytes] = []
        cut = ""
        while b"c" not in seen:
            part = next(parts)
            seen += [each.payload for each in part.events]
            cut = part.cut
        assert set(seen) == {b"a", b"b", b"c"}
        broker.signal()
        for call in (parts, answers):
            with pytest.raises(grpc.RpcError) as found:
                list(call)
            error = error_of(found.value)
            assert (found.value.code(), error.code) == (grpc.StatusCode.UNAVAILABLE, "draining")
        assert broker.wait() == 0
        assert "still under way" not in broker.log.read_text()
    with (
        BrokerProcess(tmp_path / "river", folder=tmp_path) as broker,
        Client(broker.addresses["grpc"]) as client,
    ):
        append(client, b"d")
        follower = client.Follow(v1.FollowRequest(stream="iot/a", start=cut))
        next(follower)
        assert [each.payload for each in next(follower).events] == [b"d"]
        follower.cancel()


def test_tls_and_tokens_are_those_of_the_other_front_ends(tmp_path: Path) -> None:
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")
    line("stream", "create", "iot/a")
    token = line("token", "issue", "w", "--role", "writer").out.strip()
    with BrokerProcess(line.store, "--dev-tls", "--auth", "tokens", folder=tmp_path) as broker:
        address = broker.addresses["grpc"].replace("127.0.0.1", "localhost")
        credentials = grpc.ssl_channel_credentials((line.store / "tls" / "ca.pem").read_bytes())
        with Client(address, token, credentials) as known, Client(address, None, credentials) as stranger:
            append(known, b"x")
            with pytest.raises(grpc.RpcError) as found:
                append(stranger, b"x")
            assert found.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert error_of(found.value).code == "unauthenticated"
        with Client(address) as plain, pytest.raises(grpc.RpcError):
            append(plain, b"x")
        assert token not in broker.log.read_text()


@pytest.mark.slow
def test_a_store_in_memory_has_no_grpc(tmp_path: Path) -> None:
    with BrokerProcess("memory://", folder=tmp_path) as broker:
        assert broker.addresses.keys() == {"store", "flight", "http"}
    alone = ["--set", "flight=false", "--set", "http=false", "--set", "store=memory://"]
    told = Line(tmp_path / "river").process("serve", *alone)
    assert told.code == 2 and "a store in memory is not served by gRPC" in told.err


@pytest.mark.slow
def test_a_caller_who_takes_nothing_holds_up_neither_others_nor_the_end(tmp_path: Path) -> None:
    quick = ["--set", "send_timeout_s=0.5", "--set", "drain_s=2.5"]
    with (
        BrokerProcess(tmp_path / "river", *quick, folder=tmp_path) as broker,
        Client(broker.addresses["grpc"]) as client,
    ):
        create(client)
        for _ in range(20):
            append(client, b"x" * 1_000_000)
        call = client.Read(v1.ReadRequest(stream="iot/a"), timeout=PATIENCE_S)
        next(call)
        assert append(client, b"alive").events == 1
        assert broker.end() == 0
        assert "still under way" not in broker.log.read_text()
        with pytest.raises(grpc.RpcError):
            list(call)
