"""A PostgreSQL server that is restarted, killed and disconnected."""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg

from tests.postgres_server import Server
from torture.disk import SmallDisk


class PostgresServer:
    """The tests' server, with its faults."""

    def __init__(self) -> None:
        # Not below the run's own folder: the server does not run as root, and must be able to access it.
        self._home = Path(tempfile.mkdtemp(prefix="anabranch-torture-"))
        self._home.chmod(0o755)
        self._disk = SmallDisk(self._home / "disk")
        (self._home / "disk").chmod(0o755)
        self.left_out = [f"PostgreSQL's {text}" for text in self._disk.left_out]
        self._server = Server("max_wal_size=64MB", "min_wal_size=32MB", where=self._disk.folder)

    @property
    def url(self) -> str:
        """The catalog's address."""
        return self._server.url

    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        """See `conductor.Server.faults`."""
        return {
            "PostgreSQL restarted": self._restart,
            "PostgreSQL killed and started": self._crash,
            "PostgreSQL connections cut": self._cut,
            **({"PostgreSQL's disk full": self._fill} if self._disk.faults() else {}),
        }

    def _restart(self, rng: random.Random) -> None:
        self._server.stop(signal.SIGINT)
        self._server.start()

    def _crash(self, rng: random.Random) -> None:
        self._server.stop(signal.SIGQUIT)
        self._server.start()

    def _cut(self, rng: random.Random) -> None:
        with suppress(psycopg.Error), psycopg.connect(self._server.url, autocommit=True) as database:
            database.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid <> pg_backend_pid() and backend_type = 'client backend' and random() < 0.5"
            )

    def _fill(self, rng: random.Random) -> None:
        self._disk.fill(rng)
        if not self._answers():  # without room for its log it shuts down, or is just restarting
            self._server.stop(signal.SIGQUIT)
            self._server.start()

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._server.url, connect_timeout=5).close()
        except psycopg.Error:
            return False
        return True

    def recover(self) -> None:
        """See `conductor.Server.recover`."""
        self._disk.recover()
        if self._server.process is None:
            self._server.start()

    def lose_power(self) -> None:
        """See `conductor.Server.lose_power`. Kills all of its processes at once; what it wrote stays in the system's
        cache."""
        self._server.kill()
        self._server.start()

    def close(self) -> None:
        """Stops it and deletes its data."""
        self._server.remove()
        self._disk.close()
        shutil.rmtree(self._home, ignore_errors=True)
