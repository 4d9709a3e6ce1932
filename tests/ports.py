"""Ports for servers that tests start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has: from below those that the system gives to connections, so that it is still free
    when the server begins, and when it begins anew."""
    low = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 32_768
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(min(10_000, low // 2), low)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
