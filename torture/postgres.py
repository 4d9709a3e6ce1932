"""A PostgreSQL server that is restarted, killed and cut off."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from contextlib import suppress

import psycopg

from tests.postgres_server import Server


class PostgresServer:
    """The tests' server, with what can go wrong with it."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._server = Server()

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

    def recover(self) -> None:
        """See `conductor.Server.recover`."""
        if self._server.process is None:
            self._server.start()

    def close(self) -> None:
        """End it and delete its data."""
        self._server.remove()
