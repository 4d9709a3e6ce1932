"""Keys of blobs: where a blob lies, and when its writing began.

    commits/<begun_at, 16 hex digits>-<token>.arrow      tier 1: group commits, staged uploads
    history/<begun_at, 16 hex digits>-<token>.parquet    tier 2: compacted files
    manifests/<begun_at, 16 hex digits>-<token>/         copies of the catalog: parts 00000000.arrow …, and an index
    attached/<begun_at, 16 hex digits>-<token>/<name>    a file of another place, which the store reads and never writes
    footers/<begun_at, 16 hex digits>-<token>/<name>     the same; its checksum is one over its footer alone

The time leads, so that a listing in key order is in order of time: the collector stops at its horizon.
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.model.ids import Micros

COMMITS: Final = "commits/"
HISTORY: Final = "history/"
MANIFESTS: Final = "manifests/"
PREFIXES: Final = (COMMITS, HISTORY)  # of streams' blobs

_MANIFEST = re.compile(r"manifests/([0-9a-f]{16})-[0-9a-f]{24}/\Z")
ATTACHED: Final = ("attached/", "footers/")

_KEY = re.compile(r"(?:commits/([0-9a-f]{16})-[0-9a-f]{24}\.arrow|history/([0-9a-f]{16})-[0-9a-f]{24}\.parquet)\Z")
_ATTACHED = re.compile(r"(?:attached|footers)/(([0-9a-f]{16})-[0-9a-f]{24})/(.+)\Z", re.DOTALL)


def commit_key(now: Micros, token: str) -> str:
    """The key of a tier-1 blob whose writing begins at `now`; `token` is 24 hex digits of chance."""
    return f"{COMMITS}{now:016x}-{token}.arrow"


def history_key(now: Micros, token: str) -> str:
    """The key of a tier-2 file whose writing begins at `now`; `token` is 24 hex digits of chance."""
    return f"{HISTORY}{now:016x}-{token}.parquet"


def begun_at(key: str) -> Micros | None:
    """When the writing of a blob began, or None for a key that is not of this store's making."""
    if match := _ATTACHED.match(key):
        return Micros(int(match[2], 16))
    match = _KEY.match(key)
    return Micros(int(match[1] or match[2], 16)) if match else None


def attachment(now: Micros, token: str) -> str:
    """The id of an attachment that is made at `now`; `token` is 24 hex digits of chance."""
    return f"{now:016x}-{token}"


def attached_key(attachment: str, name: str, *, footer: bool) -> str:
    """The key of an attached file. With `footer` its checksum covers that alone."""
    return f"{ATTACHED[footer]}{attachment}/{name}"


def is_attached(key: str) -> bool:
    """True for the key of a file of another place."""
    return key.startswith(ATTACHED)


def split_attached(key: str) -> tuple[str, str] | None:
    """The attachment and the name in it of an attached file; None for any other key."""
    match = _ATTACHED.match(key)
    return (match[1], match[3]) if match else None


def is_summed_by_footer(key: str) -> bool:
    """True where a file's checksum is one over its footer."""
    return key.startswith(ATTACHED[True])


def manifest_folder(now: Micros, token: str) -> str:
    """The prefix of the keys of a manifest whose writing begins at `now`."""
    return f"{MANIFESTS}{now:016x}-{token}/"


def manifest_index(folder: str) -> str:
    """The key of a manifest's index."""
    return f"{folder}index"


def manifest_begun_at(folder: str) -> Micros | None:
    """When the writing of a manifest began, or None for a folder that is none's."""
    match = _MANIFEST.match(folder)
    return Micros(int(match[1], 16)) if match else None
