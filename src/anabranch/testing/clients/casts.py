"""What a process is made of: the clients that run in it side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.testing.clients.arena import Client
from anabranch.testing.clients.copy import copy
from anabranch.testing.clients.hold import hold
from anabranch.testing.clients.maintain import collect, maintain
from anabranch.testing.clients.publish import publish
from anabranch.testing.clients.read import follow, read
from anabranch.testing.clients.scale import scale
from anabranch.testing.clients.write import rival, write

__all__ = ["CASTS", "HARVEST", "HOLDERS", "STORM", "Cast"]

# What a process may be made of. Readers alone must hear of everything from other processes.
Cast = Sequence[tuple[str, Client]]
CASTS: Final[Sequence[Cast]] = (
    (
        ("write", write),
        ("write", write),
        ("read", read),
        ("scale", scale),
        ("maintain", maintain),
        ("collect", collect),
    ),
    (("write", write), ("rival", rival), ("publish", publish), ("follow", follow), ("copy", copy)),
    (("read", read), ("follow", follow), ("collect", collect)),
    (("rival", rival), ("scale", scale), ("maintain", maintain), ("collect", collect)),
)
# Nothing but writing under scales and takeovers.
STORM: Final[Sequence[Cast]] = ((("write", write), ("write", write), ("rival", rival), ("scale", scale)),)
# Copies of streams that are truncated and collected.
HARVEST: Final[Sequence[Cast]] = ((("write", write), ("copy", copy), ("maintain", maintain), ("collect", collect)),)
# Ephemeral streams that are begun, joined and left by many.
HOLDERS: Final[Sequence[Cast]] = ((("hold", hold), ("hold", hold), ("write", write), ("collect", collect)),)
