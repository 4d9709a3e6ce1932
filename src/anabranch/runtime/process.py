"""The display name of a process."""

from __future__ import annotations

import os
import socket


def this_process() -> str:
    """The machine and the process id, as `host:1234`."""
    return f"{socket.gethostname()}:{os.getpid()}"
