"""The kinds of stores to torture, and the servers that they need."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from torture.conductor import Server
from torture.disk import SmallDisk
from torture.location import StoreLocation
from torture.postgres import PostgresServer
from torture.s3 import S3Server

BROKERS: Final = "brokers-"  # before the name of a kind: two brokers over it
NAMES: Final = ("sqlite", "postgres", "s3")  # s3: with its catalog on PostgreSQL


class _All:
    """Several servers as one."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers = servers
        self.left_out = [what for server in servers for what in server.left_out]

    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        """See `conductor.Server.faults`."""
        return {name: act for server in self._servers for name, act in server.faults().items()}

    def recover(self) -> None:
        """See `conductor.Server.recover`."""
        for server in self._servers:
            server.recover()

    def lose_power(self) -> None:
        """See `conductor.Server.lose_power`."""
        for server in self._servers:
            server.lose_power()


@contextmanager
def place(name: str, folder: Path) -> Iterator[tuple[StoreLocation, Server]]:
    """Creates a place of the kind below the folder; its servers run until the context ends."""
    with ExitStack() as running:
        if name == "sqlite":
            disk = running.enter_context(closing(SmallDisk(folder / "disk")))
            yield StoreLocation(str(disk.folder / "river")), disk
            return
        catalog = running.enter_context(closing(PostgresServer()))
        if name == "postgres":
            disk = running.enter_context(closing(SmallDisk(folder / "disk")))
            yield StoreLocation(catalog.url, str(disk.folder / "blobs")), _All([catalog, disk])
            return
        blobs = running.enter_context(closing(S3Server()))
        there = StoreLocation(catalog.url, blobs.url)
        settings = replace(there.settings, blob_request_s=2.0, blob_deadline_s=30.0)
        yield replace(there, settings=settings), _All([catalog, blobs])
