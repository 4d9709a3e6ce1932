"""What a process is made of: the clients that run in it side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.testing.clients.alias import alias
from anabranch.testing.clients.append import append
from anabranch.testing.clients.archive import archive
from anabranch.testing.clients.arena import Client
from anabranch.testing.clients.byte_streams import browse, scribble
from anabranch.testing.clients.copy import copy
from anabranch.testing.clients.copy_scope import copy_scope
from anabranch.testing.clients.group import feed, share
from anabranch.testing.clients.hold import hold
from anabranch.testing.clients.listeners import attend, perform
from anabranch.testing.clients.maintain import collect, maintain
from anabranch.testing.clients.notifications import change, listen
from anabranch.testing.clients.publish import publish
from anabranch.testing.clients.read import follow, read
from anabranch.testing.clients.recovery import back_up, export, made_anew
from anabranch.testing.clients.recovery_mend import mend, rotate
from anabranch.testing.clients.rename import rename
from anabranch.testing.clients.retain import retain
from anabranch.testing.clients.scale import scale
from anabranch.testing.clients.stitch import stitch
from anabranch.testing.clients.transactions import transact
from anabranch.testing.clients.upkeep import load, tend
from anabranch.testing.clients.watermarks import note, observe
from anabranch.testing.clients.write import rival, write

__all__ = [
    "ALGEBRA",
    "ALL",
    "ARCHIVISTS",
    "BASIC",
    "BY_NAME",
    "CASTS",
    "GROWTH",
    "HARVEST",
    "HOLDERS",
    "KEEPERS",
    "LINKS",
    "LISTENERS",
    "SAVERS",
    "SCRIBES",
    "SHARERS",
    "STORM",
    "TIMEKEEPERS",
    "TOGETHER",
    "TRANSACTORS",
    "UPKEEPERS",
    "Cast",
]

Cast = Sequence[tuple[str, Client]]
_TAKERS: Final[Cast] = (
    ("write", write),
    ("follow", follow),
    ("append", append),
    ("stitch", stitch),
    ("copy", copy),
    ("copy_scope", copy_scope),
    ("rename", rename),
)
# Readers alone must hear of everything from other processes.
BASIC: Final[Sequence[Cast]] = (
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
# What a rehearsal's processes may be made of: its clients are threads.
CASTS: Final[Sequence[Cast]] = (*BASIC, _TAKERS)
# Nothing but writing under scales and takeovers.
STORM: Final[Sequence[Cast]] = ((("write", write), ("write", write), ("rival", rival), ("scale", scale)),)
# Copies of streams that are truncated and collected.
HARVEST: Final[Sequence[Cast]] = ((("write", write), ("copy", copy), ("maintain", maintain), ("collect", collect)),)
# Streams to which others are appended, and nothing but writing.
GROWTH: Final[Sequence[Cast]] = ((("write", write), ("rival", rival), ("rival", rival), ("append", append)),)
# Streams of streams, beside those that write, scale, compact and collect.
ALGEBRA: Final[Sequence[Cast]] = (
    _TAKERS,
    (("write", write), ("rival", rival), ("append", append), ("rename", rename), ("read", read)),
    (("scale", scale), ("maintain", maintain), ("collect", collect), ("copy", copy), ("stitch", stitch)),
)
# Streams that go out and come back, beside those that write, scale, truncate, compact and collect.
ARCHIVISTS: Final[Sequence[Cast]] = (
    (("write", write), ("archive", archive), ("maintain", maintain), ("collect", collect)),
    (("write", write), ("archive", archive), ("scale", scale), ("rename", rename), ("copy", copy)),
)
# Ephemeral streams that are begun, joined and left by many.
HOLDERS: Final[Sequence[Cast]] = ((("hold", hold), ("hold", hold), ("write", write), ("collect", collect)),)
# Streams that are renamed, and their further names.
LINKS: Final[Sequence[Cast]] = (
    (("alias", alias), ("alias", alias), ("rename", rename), ("write", write), ("copy", copy)),
)
# Streams that lose their beginnings by policies, beside readers, copies and collection.
KEEPERS: Final[Sequence[Cast]] = (
    (("write", write), ("retain", retain), ("retain", retain), ("read", read), ("scale", scale)),
    (("write", write), ("retain", retain), ("follow", follow), ("copy", copy), ("collect", collect)),
)
# Readers of one group, of a stream that is scaled under them.
SHARERS: Final[Sequence[Cast]] = (
    (("share", share), ("share", share), ("feed", feed), ("maintain", maintain)),
    (("share", share), ("feed", feed), ("collect", collect)),
)
# Backups, manifests, repairs and rotations, beside those that write, truncate, compact and collect.
SAVERS: Final[Sequence[Cast]] = (
    (("write", write), ("back_up", back_up), ("rotate", rotate), ("maintain", maintain), ("collect", collect)),
    (("write", write), ("export", export), ("made_anew", made_anew), ("scale", scale), ("collect", collect)),
    (("write", write), ("mend", mend), ("back_up", back_up), ("copy", copy), ("maintain", maintain)),
)
# Transactions over several streams, beside those that read, scale, rename, copy, truncate, compact and collect.
TRANSACTORS: Final[Sequence[Cast]] = (
    (("transact", transact), ("transact", transact), ("read", read), ("scale", scale), ("collect", collect)),
    (("transact", transact), ("write", write), ("follow", follow), ("rename", rename), ("copy", copy)),
    (("transact", transact), ("read", read), ("maintain", maintain), ("append", append)),
)
# Writers that note times, and readers of watermarks.
TIMEKEEPERS: Final[Sequence[Cast]] = (
    (("note", note), ("note", note), ("observe", observe), ("maintain", maintain)),
    (("note", note), ("observe", observe), ("collect", collect)),
)
# Scaling by load, retention, compaction and collection in the background of several processes.
UPKEEPERS: Final[Sequence[Cast]] = (
    (("load", load), ("load", load), ("tend", tend), ("read", read)),
    (("load", load), ("tend", tend), ("tend", tend)),
)
# Changes of streams and of groups, and those who listen to them.
LISTENERS: Final[Sequence[Cast]] = (
    (("change", change), ("listen", listen), ("listen", listen), ("collect", collect)),
    (("change", change), ("listen", listen), ("rename", rename), ("share", share), ("feed", feed)),
    (("perform", perform), ("attend", attend), ("attend", attend), ("collect", collect)),
)
# Byte streams, beside those that compact and collect.
SCRIBES: Final[Sequence[Cast]] = (
    (("scribble", scribble), ("browse", browse), ("browse", browse), ("maintain", maintain)),
    (("scribble", scribble), ("browse", browse), ("collect", collect)),
)
# By the names that `./dev sim --cast` takes; what stands here takes part in a run of all of them.
BY_NAME: Final[Mapping[str, Sequence[Cast]]] = {
    "basic": BASIC,
    "algebra": ALGEBRA,
    "storm": STORM,
    "archives": ARCHIVISTS,
    "ephemeral": HOLDERS,
    "links": LINKS,
    "retention": KEEPERS,
    "groups": SHARERS,
    "transactions": TRANSACTORS,
    "bytes": SCRIBES,
    "notifications": LISTENERS,
    "upkeep": UPKEEPERS,
    "watermarks": TIMEKEEPERS,
    "recovery": SAVERS,
}
# Everything by which clients of several processes share what they do.
TOGETHER: Final[Sequence[Cast]] = (*SHARERS, *TRANSACTORS, *SCRIBES, *UPKEEPERS, *TIMEKEEPERS, *LISTENERS)
ALL: Final[Sequence[Cast]] = tuple(cast for casts in BY_NAME.values() for cast in casts)
