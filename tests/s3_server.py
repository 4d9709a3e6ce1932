"""An S3 server for tests: one named by ANABRANCH_TEST_S3, or else the emulator of a wheel; and ways to spoil it.

ANABRANCH_TEST_S3 is the URL of a prefix as `connect(blobs=…)` takes it; the credentials come from the environment.
A test that can't have a server fails; none is skipped.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.ports import free_port
from tests.waiting import PATIENCE_S

_GIVEN = "ANABRANCH_TEST_S3"
BUCKET = "anabranch-test"
_names = itertools.count()

# The server, and a thread that ends it with the tests, be they killed: then nobody holds its standard input any more.
_UNTIL_STDIN_ENDS = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
sys.argv = ["ministack"]
from ministack.app import main
main()
"""


class Emulator:
    """A server of the wheel, `ministack`, with nothing but S3, in memory. It goes with this process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="anabranch-s3-"))
        self.port = free_port()
        settings = {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "s3",
            "LOG_LEVEL": "WARNING",
            "TMPDIR": str(self.folder),
        }
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _UNTIL_STDIN_ENDS],
                cwd=self.folder, env={**os.environ, **settings}, stdin=subprocess.PIPE, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        atexit.register(self.remove)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
                with urllib.request.urlopen(request, timeout=10):
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    def remove(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdin is not None
        self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def ensure_credentials() -> None:
    """Have credentials in the environment. The emulator takes any."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "tester")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "a-very-secret-key")


@functools.cache
def emulator() -> Emulator:
    """The emulator that tests share."""
    ensure_credentials()
    return Emulator()


def fresh_url(*, port: int | None = None, scheme: str = "http", options: str = "", bucket: str | None = None) -> str:
    """The URL of a prefix that holds nothing yet; `port` is that of a proxy in front of the emulator."""
    prefix = f"t{os.getpid()}-{time.time_ns():x}-{next(_names)}"
    given = os.environ.get(_GIVEN)
    if given and port is None and bucket is None:
        base, _, query = given.partition("?")
        return f"{base.rstrip('/')}/{prefix}?{query}"
    server = f"{scheme}://127.0.0.1:{port or emulator().port}"
    allow = "&allow_http=true" if scheme == "http" else ""
    return f"s3://{bucket or BUCKET}/{prefix}?endpoint={server}&region=us-east-1{allow}{options}"


def put_object(url: str, key: str, content: bytes) -> None:
    """Write an object below a `fresh_url` of the emulator, as other programs do: a key that ends with `/` marks a folder."""
    place = url.partition("?")[0].removeprefix("s3://")
    made = urllib.request.Request(f"http://127.0.0.1:{emulator().port}/{place}/{key}", data=content, method="PUT")
    with urllib.request.urlopen(made, timeout=PATIENCE_S):
        pass


class Exchange:
    """One request on its way: `method` and `path`, and how often it was seen before, from 0."""

    def __init__(self, head: bytes, seen: int) -> None:
        self.method, self.path = (word.decode() for word in head.split(b" ", 2)[:2])
        self.headers = head.lower()
        self.seen = seen


class Spoil:
    """What a proxy does to an exchange."""

    def __init__(
        self, status: int = 0, *, code: str = "Spoiled", forward: bool = False, mute: bool = False, half: bool = False
    ) -> None:
        self.status = status  # answered in place of the server; 0: none, the connection is cut
        self.code = code
        self.forward = forward  # the server gets it all the same: only its answer is lost
        self.mute = mute  # nothing is ever answered
        self.half = half  # the server's answer breaks off in the middle


class Proxy:
    """An HTTP proxy in front of the emulator. `spoil` decides on each request; None lets it pass.

    One request a connection, so that what is spoiled is well defined. Speaks TLS where it has a certificate.
    """

    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        self.spoil: Callable[[Exchange], Spoil | None] = lambda exchange: None
        self.requests: list[Exchange] = []
        self._seen: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate, key)
        self._behind = emulator().port
        self._closed = threading.Event()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self._tls is None:
                self._exchange(client)
                return
            with self._tls.wrap_socket(client, server_side=True) as inside:
                self._exchange(inside)

    def _exchange(self, client: socket.socket) -> None:
        request = _message(client)
        if not request:
            return
        head = request.partition(b"\r\n\r\n")[0]
        name = (head.split(b" ", 1)[0].decode(), head.split(b" ", 2)[1].decode())
        with self._lock:
            exchange = Exchange(head, self._seen.get(name, 0))
            self._seen[name] = exchange.seen + 1
            self.requests.append(exchange)
        spoil = self.spoil(exchange)
        if spoil is None or spoil.forward or spoil.half:
            answer = self._forward(request)
        if spoil is None:
            client.sendall(answer)
        elif spoil.half:
            client.sendall(answer[: -len(answer.partition(b"\r\n\r\n")[2]) // 2])
        elif spoil.mute:
            self._closed.wait(60)
        elif spoil.status:
            body = f"<Error><Code>{spoil.code}</Code></Error>".encode()
            told = f"HTTP/1.1 {spoil.status} Spoiled\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            client.sendall(told.encode() + body)

    def _forward(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection(("127.0.0.1", self._behind), 30) as server:
            server.sendall(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)
            parts = []
            while data := server.recv(1 << 16):
                parts.append(data)
        return b"".join(parts)


def _message(client: socket.socket) -> bytes:
    """One whole request, head and body."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        more = client.recv(1 << 16)
        if not more:
            return b""
        data += more
    head, _, _ = bytes(data).partition(b"\r\n\r\n")
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    length = next((int(value) for name, _, value in fields if name.lower() == b"content-length"), 0)
    while len(data) < len(head) + 4 + length:
        more = client.recv(1 << 16)
        if not more:
            return b""
        data += more
    return bytes(data)
