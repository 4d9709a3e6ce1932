"""Telling systemd, or another supervisor that speaks its protocol, that the broker is ready or ends: `sd_notify(3)`."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Literal


def notify(state: Literal["READY=1", "STOPPING=1"]) -> None:
    """Send the state to the socket in `NOTIFY_SOCKET`, if there is one. It is no error if nothing listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect("\0" + address[1:] if address.startswith("@") else address)
        out.sendall(state.encode())
