"""Mixes: the sets of clients that run side by side in a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.simulation.clients.alias import alias
from tests.simulation.clients.append import append
from tests.simulation.clients.archive import archive
from tests.simulation.clients.arena import Client
from tests.simulation.clients.byte_streams import browse, scribble
from tests.simulation.clients.copy import copy
from tests.simulation.clients.copy_scope import copy_scope
from tests.simulation.clients.group import feed, share
from tests.simulation.clients.hold import hold
from tests.simulation.clients.listeners import attend, perform
from tests.simulation.clients.maintain import collect, collect_ahead, maintain
from tests.simulation.clients.notifications import change, listen
from tests.simulation.clients.produce import go_on, produce
from tests.simulation.clients.publish import publish
from tests.simulation.clients.read import follow, read
from tests.simulation.clients.recovery import back_up, export, made_anew
from tests.simulation.clients.recovery_mend import mend, rotate
from tests.simulation.clients.rename import rename
from tests.simulation.clients.retain import retain
from tests.simulation.clients.scale import scale
from tests.simulation.clients.stitch import stitch
from tests.simulation.clients.subscribe import consume, release
from tests.simulation.clients.transactions import transact
from tests.simulation.clients.upkeep import load, tend
from tests.simulation.clients.watermarks import note, observe
from tests.simulation.clients.write import rival, write

__all__ = [
    "ALGEBRA",
    "ALIASES",
    "ALL",
    "APPENDS",
    "ARCHIVES",
    "BASIC",
    "BYTE_STREAMS",
    "BY_NAME",
    "CLOCKS",
    "COLLECTION",
    "EPHEMERAL_STREAMS",
    "GROUPS",
    "MIXES",
    "NOTIFICATIONS",
    "PRODUCERS",
    "RECOVERY",
    "RETENTION",
    "SUBSCRIBERS",
    "TOGETHER",
    "TRANSACTIONS",
    "UPKEEP",
    "WATERMARKS",
    "WRITES_AND_SCALES",
    "ClientMix",
]

ClientMix = Sequence[tuple[str, Client]]
_STREAM_OPERATIONS: Final[ClientMix] = (
    ("write", write),
    ("follow", follow),
    ("append", append),
    ("stitch", stitch),
    ("copy", copy),
    ("copy_scope", copy_scope),
    ("rename", rename),
)
# Readers alone must be notified of everything from other processes.
BASIC: Final[Sequence[ClientMix]] = (
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
# The mixes of a rehearsal, whose clients are threads.
MIXES: Final[Sequence[ClientMix]] = (*BASIC, _STREAM_OPERATIONS)
# Only writing, under scales and takeovers.
WRITES_AND_SCALES: Final[Sequence[ClientMix]] = (
    (("write", write), ("write", write), ("rival", rival), ("scale", scale)),
)
# Copies of streams that are truncated and collected.
COLLECTION: Final[Sequence[ClientMix]] = (
    (("write", write), ("copy", copy), ("maintain", maintain), ("collect", collect)),
)
# Streams to which others are appended, and otherwise only writing.
APPENDS: Final[Sequence[ClientMix]] = ((("write", write), ("rival", rival), ("rival", rival), ("append", append)),)
# Operations on whole streams, beside clients that write, scale, compact and collect.
ALGEBRA: Final[Sequence[ClientMix]] = (
    _STREAM_OPERATIONS,
    (("write", write), ("rival", rival), ("append", append), ("rename", rename), ("read", read)),
    (("scale", scale), ("maintain", maintain), ("collect", collect), ("copy", copy), ("stitch", stitch)),
)
# Streams that are archived and imported, beside clients that write, scale, truncate, compact and collect.
ARCHIVES: Final[Sequence[ClientMix]] = (
    (("write", write), ("archive", archive), ("maintain", maintain), ("collect", collect)),
    (("write", write), ("archive", archive), ("scale", scale), ("rename", rename), ("copy", copy)),
)
# Ephemeral streams that many clients create, join and leave.
EPHEMERAL_STREAMS: Final[Sequence[ClientMix]] = (
    (("hold", hold), ("hold", hold), ("write", write), ("collect", collect)),
)
# Streams that are renamed, and their aliases.
ALIASES: Final[Sequence[ClientMix]] = (
    (("alias", alias), ("alias", alias), ("rename", rename), ("write", write), ("copy", copy)),
)
# Streams that retention policies truncate, beside readers, copies and collection.
RETENTION: Final[Sequence[ClientMix]] = (
    (("write", write), ("retain", retain), ("retain", retain), ("read", read), ("scale", scale)),
    (("write", write), ("retain", retain), ("follow", follow), ("copy", copy), ("collect", collect)),
)
# Readers of one group, of a stream that is scaled meanwhile.
GROUPS: Final[Sequence[ClientMix]] = (
    (("share", share), ("share", share), ("feed", feed), ("maintain", maintain)),
    (("share", share), ("feed", feed), ("collect", collect)),
)
# Reader groups for which retention waits.
SUBSCRIBERS: Final[Sequence[ClientMix]] = (
    (("release", release), ("consume", consume), ("consume", consume), ("collect", collect)),
    (("release", release), ("consume", consume), ("maintain", maintain)),
)
# Backups, manifests, repairs and key rotations, beside clients that write, truncate, compact and collect.
RECOVERY: Final[Sequence[ClientMix]] = (
    (("write", write), ("back_up", back_up), ("rotate", rotate), ("maintain", maintain), ("collect", collect)),
    (("write", write), ("export", export), ("made_anew", made_anew), ("scale", scale), ("collect", collect)),
    (("write", write), ("mend", mend), ("back_up", back_up), ("copy", copy), ("maintain", maintain)),
)
# Transactions over several streams, beside clients that read, scale, rename, copy, truncate, compact and collect.
TRANSACTIONS: Final[Sequence[ClientMix]] = (
    (("transact", transact), ("transact", transact), ("read", read), ("scale", scale), ("collect", collect)),
    (("transact", transact), ("write", write), ("follow", follow), ("rename", rename), ("copy", copy)),
    (("transact", transact), ("read", read), ("maintain", maintain), ("append", append)),
)
# Appends that several processes send for one client, beside clients that scale, rename, truncate, compact and collect.
PRODUCERS: Final[Sequence[ClientMix]] = (
    (("produce", produce), ("produce", produce), ("go_on", go_on), ("scale", scale), ("maintain", maintain)),
    (("produce", produce), ("go_on", go_on), ("write", write), ("rename", rename), ("collect", collect)),
    (("produce", produce), ("scale", scale), ("read", read)),
)
# Writers that note times, and readers of watermarks.
WATERMARKS: Final[Sequence[ClientMix]] = (
    (("note", note), ("note", note), ("observe", observe), ("maintain", maintain)),
    (("note", note), ("observe", observe), ("collect", collect)),
)
# Scaling by load, retention, compaction and collection in the background of several processes.
UPKEEP: Final[Sequence[ClientMix]] = (
    (("load", load), ("load", load), ("tend", tend), ("read", read)),
    (("load", load), ("tend", tend), ("tend", tend)),
)
# Changes of streams and of groups, and listeners to them.
NOTIFICATIONS: Final[Sequence[ClientMix]] = (
    (("change", change), ("listen", listen), ("listen", listen), ("collect", collect)),
    (("change", change), ("listen", listen), ("rename", rename), ("share", share), ("feed", feed)),
    (("perform", perform), ("attend", attend), ("attend", attend), ("collect", collect)),
)
# Byte streams, beside clients that compact and collect.
BYTE_STREAMS: Final[Sequence[ClientMix]] = (
    (("scribble", scribble), ("browse", browse), ("browse", browse), ("maintain", maintain)),
    (("scribble", scribble), ("browse", browse), ("collect", collect)),
)
# Staging, transactions and large events before the horizon of a collector whose clock is far ahead.
CLOCKS: Final[Sequence[ClientMix]] = (
    (("publish", publish), ("publish", publish), ("transact", transact), ("collect_ahead", collect_ahead)),
    (("publish", publish), ("write", write), ("copy", copy), ("maintain", maintain), ("collect", collect)),
)
# By the names that `./dev sim --mix` takes.
BY_NAME: Final[Mapping[str, Sequence[ClientMix]]] = {
    "basic": BASIC,
    "algebra": ALGEBRA,
    "storm": WRITES_AND_SCALES,
    "archives": ARCHIVES,
    "ephemeral": EPHEMERAL_STREAMS,
    "links": ALIASES,
    "retention": RETENTION,
    "groups": GROUPS,
    "subscribers": SUBSCRIBERS,
    "transactions": TRANSACTIONS,
    "producers": PRODUCERS,
    "bytes": BYTE_STREAMS,
    "notifications": NOTIFICATIONS,
    "upkeep": UPKEEP,
    "watermarks": WATERMARKS,
    "recovery": RECOVERY,
    "clocks": CLOCKS,
}
# All mixes in which clients of several processes share their work.
TOGETHER: Final[Sequence[ClientMix]] = (
    *GROUPS,
    *TRANSACTIONS,
    *PRODUCERS,
    *BYTE_STREAMS,
    *UPKEEP,
    *WATERMARKS,
    *NOTIFICATIONS,
)
# Clocks that differ widely have runs of their own: in others they would break what clients expect of each other.
ALL: Final[Sequence[ClientMix]] = tuple(mix for name, mixes in BY_NAME.items() if name != "clocks" for mix in mixes)
