"""`anabranch serve` with TLS and authentication, as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trustme
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.cli.kit import Line, environment
from tests.parameters import rest_is_slow
from tests.server.kit import BrokerProcess
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process


def context(ca: Path, certificate: Path | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(ca))
    if certificate is not None:
        made.load_cert_chain(certificate)
    return made


def client(ca: Path, certificate: Path | None = None, token: str | None = None) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(verify=context(ca, certificate), headers=headers)


@pytest.mark.parametrize("workers", rest_is_slow(["2", "1"]))
def test_dev_tls_serves_https_to_callers_with_a_token(tmp_path: Path, workers: str) -> None:
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")
    token = line("token", "issue", "root", "--role", "admin").out.strip()
    options = ["--dev-tls", "--auth", "tokens", "--set", f"workers={workers}"]
    with BrokerProcess(line.store, *options, folder=tmp_path) as broker:
        assert broker.http.startswith("https://")
        ca = line.store / "tls" / "ca.pem"
        assert {file.stat().st_mode & 0o077 for file in ca.parent.iterdir()} == {0}
        with client(ca) as anybody, client(ca, token=token) as root:
            assert anybody.get(f"{broker.http}/healthz").text == "ok\n"
            assert anybody.get(f"{broker.http}/metrics").status_code == 401
            assert root.get(f"{broker.http}/metrics").status_code == 200
            line("token", "revoke", "--principal", "root")
            until(lambda: root.get(f"{broker.http}/metrics").status_code == 401)
        with pytest.raises(httpx.HTTPError):
            httpx.get(broker.http.replace("https", "http"))
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{broker.http}/healthz")
        assert broker.end() == 0
    text = broker.log.read_text()
    assert token not in text
    audit = line("read", "_store/audit").rows
    refused = [row for row in audit if row["verb"] == "authenticate"]
    assert {row["outcome"] for row in refused} == {"Unauthenticated"}
    assert token not in json.dumps(audit)


@pytest.mark.slow
def test_the_requests_on_the_screen_carry_the_authority_and_a_token(tmp_path: Path) -> None:
    line = Line(tmp_path / "river's")  # a shell has to see its path quoted
    line("scope", "create", "plant")
    token = line("token", "issue", "root", "--role", "admin").out.strip()
    ports = [word for name in ("http", "flight", "grpc") for word in (f"--{name}-port", "0")]
    options = ["--store", str(line.store), "--dev-tls", "--auth", "tokens", *ports]
    command = [sys.executable, "-m", "anabranch.cli.main", "serve", *options]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            shown = ""
            while "Stop" not in shown:
                piece = process.stdout.readline()
                assert piece, shown
                shown += piece
            *creating, following = re.findall(r"curl .*", shown)
            assert len(creating) == 2
            assert token not in shown
            for request in [*creating, following.replace("?follow", "")]:
                shell = ["sh", "-c", f"{request} -sf"]
                subprocess.run(
                    shell,
                    check=True,
                    env={**os.environ, "TOKEN": token},
                    timeout=PATIENCE_S,
                    stdout=subprocess.DEVNULL,
                )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def test_a_certificate_names_its_caller(tmp_path: Path) -> None:
    line, authority = Line(tmp_path / "river"), trustme.CA()
    line("scope", "create", "iot")
    line("role", "bind", "admin", "cert:ops.internal")
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    files = {}
    for name in ("localhost", "ops.internal", "other.internal"):
        files[name] = tmp_path / f"{name}.pem"
        files[name].touch(mode=0o600)
        authority.issue_cert(name, "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(files[name])
    server = [f"{name}={files['localhost']}" for name in ("tls_certificate", "tls_key")]
    options = [word for each in (*server, f"tls_client_ca={ca}") for word in ("--set", each)]
    with BrokerProcess(line.store, *options, folder=tmp_path) as broker:
        with client(ca, files["ops.internal"]) as ops, client(ca, files["other.internal"]) as other:
            assert ops.get(f"{broker.http}/metrics").status_code == 200
            assert other.get(f"{broker.http}/metrics").status_code == 403
        line("stream", "create", "iot/raw")
        socket = f"{broker.http.replace('http', 'ws', 1)}/v1/streams/iot/raw/events"
        with connect(socket, ssl=context(ca, files["ops.internal"])):
            pass
        with pytest.raises(InvalidStatus, match="403"), connect(socket, ssl=context(ca, files["other.internal"])):
            pass
        with client(ca) as stranger, pytest.raises(httpx.HTTPError):
            stranger.get(f"{broker.http}/healthz")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "needs TLS"),
        (["--host", "0.0.0.0", "--dev-tls", "--set", "auth=off"], "authentication"),
        (["--tls-certificate", "none.pem", "--tls-key", "none.pem"], "can't be read"),
        (["--set", "jwt_issuer=http://idp.example.com", "--set", "jwt_audience=x"], "expected an https:// address"),
    ],
)
def test_what_is_not_safe_does_not_start(tmp_path: Path, options: list[str], said: str) -> None:
    command = Line(tmp_path / "river").command(
        "serve", "--http-port", "0", "--flight-port", "0", "--grpc-port", "0", *options
    )
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=PATIENCE_S)
    assert done.returncode == 2
    assert said in done.stderr.decode()
