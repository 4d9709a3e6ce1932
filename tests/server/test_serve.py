"""`anabranch serve` as a process: its start, health, metrics, time-outs and its end."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
from pyarrow import flight
from typer.testing import CliRunner

from anabranch.cli.commands import app
from anabranch.model.schema import RAW
from anabranch.wire.commands import pack
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.cli.kit import Line, environment
from tests.server.kit import NO_GRPC, BrokerProcess
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    quick = ["--set", "header_timeout_s=0.3", "--set", "body_timeout_s=0.3", "--set", "request_bytes_max=4096"]
    with BrokerProcess(folder / "river", *quick, folder=folder) as process:
        yield process


def connection(broker: BrokerProcess) -> socket.socket:
    address = urlsplit(broker.http)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), PATIENCE_S)


def until_closed(client: socket.socket) -> bytes:
    """What comes until the broker closes the connection."""
    found = b""
    try:
        while piece := client.recv(4096):
            found += piece
    except ConnectionResetError:
        pass
    return found


def test_it_says_that_it_is_alive_and_ready(broker: BrokerProcess) -> None:
    assert httpx.get(f"{broker.http}/healthz").text == "ok\n"
    assert httpx.get(f"{broker.http}/readyz").text == "ready\n"
    assert httpx.get(f"{broker.http}/nothing").status_code == 404


def test_metrics_hold_the_brokers_counts_and_the_stores(broker: BrokerProcess) -> None:
    httpx.get(f"{broker.http}/healthz")
    text = httpx.get(f"{broker.http}/metrics").text
    assert 'anabranch_broker_calls_total{front_end="http",outcome="ok"}' in text
    assert 'anabranch_store_bytes{kind="fresh",state="live"}' in text
    assert 'anabranch_broker_open_calls{front_end="http"} 1' in text


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "])
def test_a_caller_who_does_not_finish_the_head_of_a_request_is_disconnected(broker: BrokerProcess, sent: bytes) -> None:
    with connection(broker) as client:
        client.sendall(sent)
        assert until_closed(client) == b""


def test_a_kept_connection_has_to_finish_its_next_head_too(broker: BrokerProcess) -> None:
    with connection(broker) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /he")
        assert until_closed(client).startswith(b"HTTP/1.1 200")


def test_a_body_over_the_limit_is_refused_before_it_is_read(broker: BrokerProcess) -> None:
    answer = httpx.post(f"{broker.http}/v1/anything", content=b"x" * 5000)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    assert answer.json()["code"] == "too_large"


@pytest.mark.slow
def test_the_access_log_has_no_query_and_no_header(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "river", folder=tmp_path) as broker:
        secret = {"authorization": "Bearer s3cret"}
        httpx.get(f"{broker.http}/v1/x%0a?ticket=s3cret", headers=secret)
        assert broker.end() == 0
        (record,) = broker.records()
    assert "s3cret" not in broker.log.read_text()
    assert (record["path"], record["status"], record["method"]) == ("/v1/x\n", 404, "GET")


def test_a_signal_ends_it_with_exit_code_0_and_the_port_is_free(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with BrokerProcess(tmp_path / "river", folder=tmp_path) as broker:
            broker.signal(number)
            assert broker.wait() == 0
            with pytest.raises(ConnectionRefusedError):
                connection(broker)


FAILING: Final = """
import sys
from anabranch.cli.main import main
from anabranch.server import run
run._serve = lambda front_ends, stopping, log: "http: " + sys.stdin.readline()
main()
"""


def test_a_broker_that_fails_ends_although_a_caller_is_silent(tmp_path: Path) -> None:
    line = Line(tmp_path / "river")
    line("scope", "create", "s")
    line("stream", "create", "s/a")
    ports = [word for name in ("flight", "http") for word in (f"--{name}-port", "0")]
    served = ["serve", "--store", line.store, "--json", *ports, "--set", "drain_s=0.1", *NO_GRPC]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", FAILING, *map(str, served)], env=environment(), **pipes) as broker:
        assert broker.stdin is not None and broker.stdout is not None
        address = json.loads(broker.stdout.readline())["flight"].replace("anabranch", "grpc")
        with flight.connect(address) as client:
            descriptor = flight.FlightDescriptor.for_command(pack(v1.AppendCommand(stream="s/a")))
            _writer, answers = client.do_put(descriptor, RAW.columns)
            assert answers.read() is not None
            _, err = broker.communicate(b"it failed", timeout=PATIENCE_S)
    assert broker.returncode == 2
    assert b"anabranch: the broker has ended: http: it failed\n" in err


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "river", "--set", "drain_s=86400", folder=tmp_path) as broker,
        connection(broker) as held,
    ):
        held.sendall(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        held.sendall(b"1")
        broker.signal()
        broker.signal()
        assert broker.wait() in (0, 143)


def test_a_broker_for_other_machines_has_tls_and_lets_in_who_has_a_token(tmp_path: Path) -> None:
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")  # which makes the store
    token = line("token", "issue", "watcher", "--role", "reader").out.split()[-1]
    with BrokerProcess(tmp_path / "river", "--host", "0.0.0.0", "--dev-tls", folder=tmp_path) as broker:
        address = broker.http.replace("0.0.0.0", "127.0.0.1")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "river" / "tls" / "ca.pem"))
        assert httpx.get(f"{address}/readyz", verify=trusted).is_success
        assert httpx.get(f"{address}/metrics", verify=trusted).status_code == 401
        known = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}/metrics", verify=trusted, headers=known).is_success
        assert broker.end() == 0
    assert token not in broker.log.read_text()


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = Line(tmp_path / "river").process("serve", "--flight-port", "0", "--grpc-port", "0", "--http-port", port)
    assert (told.code, told.out) == (2, "")
    assert f"can't listen on 127.0.0.1, port {port}" in told.err


def test_settings_can_be_printed_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    line = Line(tmp_path / "river")
    assert "http_port = 99  # flag" in line("serve", "--print-config", "--http-port", "99").out
    assert "needs TLS" in line.refused("serve", "--host", "0.0.0.0")
    assert "did you mean 'drain_s'?" in line.refused("serve", "--set", "drains=1")
    assert not (tmp_path / "river").exists()


@pytest.mark.slow
def test_the_screen_says_what_is_served_where_and_how_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anabranch.cli.main", "serve"]
    command += [word for name in ("flight", "http", "grpc") for word in (f"--{name}-port", "0")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        shown = b""
        while b"Stop" not in shown:
            piece = process.stdout.readline()
            assert piece, shown
            shown += piece
        requests = re.findall(r"curl .*", shown.decode())
        assert len(requests) == 3
        *creating, following = requests
        for request in creating:  # an empty store has nothing to follow: what makes a stream is shown
            subprocess.run(["sh", "-c", f"{request} -sf"], check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
        url = shlex.split(following)[-1]
        with httpx.stream("GET", url, timeout=PATIENCE_S) as answer:
            assert answer.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    for word in (b"river", b"HTTP", b"everybody on this machine", b"curl -N 'http://127.0.0.1:", b"Ctrl-C"):
        assert word in shown


@pytest.mark.slow
def test_the_shown_request_reaches_a_broker_on_all_interfaces_with_tls(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anabranch.cli.main", "serve", "--host", "0.0.0.0", "--dev-tls"]
    command += [word for name in ("flight", "http", "grpc") for word in (f"--{name}-port", "0")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shown: list[str] = []
        try:
            while not shown or "Stop" not in shown[-1]:
                shown.append(process.stdout.readline())
                assert shown[-1], shown
            words = shlex.split(next(line for line in shown if "follow" in line))
            trusted = ssl.create_default_context(cafile=words[words.index("--cacert") + 1])
            answer = httpx.get(words[-1], verify=trusted, timeout=PATIENCE_S)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert answer.status_code == 401  # it has no token
    assert "callers with a token or certificate who reach this machine; TLS" in "".join(shown)


def test_an_option_behind_the_verb_wins_over_the_brokers_own_variable(tmp_path: Path) -> None:
    variables = {
        "ANABRANCH_STORE": "/a",
        "ANABRANCH_BLOBS": "/a/blobs",
        "ANABRANCH_SERVER_STORE": "/b",
        "ANABRANCH_SERVER_BLOBS": "/b/blobs",
    }
    for given, expected in (
        (["--store", "/a", "--blobs", "/a/blobs"], {"store": "/a", "blobs": "/a/blobs"}),
        (["--blobs", "/c"], {"store": "/b", "blobs": "/c"}),
        ([], {"store": "/b", "blobs": "/b/blobs"}),
    ):
        done = CliRunner().invoke(app, ["serve", "--print-config", *given], env=variables, prog_name="anabranch")
        shown = tomllib.loads(done.stdout)
        assert {name: shown[name] for name in expected} == expected
