"""Keys of blobs: where a blob lies, and when its writing began.

    commits/<begun_at, 16 hex digits>-<token>.arrow      tier 1: group commits, staged uploads
    history/<begun_at, 16 hex digits>-<token>.parquet    tier 2: compacted files

The time leads, so that a listing in key order is in order of time: the collector stops at its horizon.
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.model.ids import Micros

COMMITS: Final = "commits/"
HISTORY: Final = "history/"
PREFIXES: Final = (COMMITS, HISTORY)

_KEY = re.compile(r"(?:commits/([0-9a-f]{16})-[0-9a-f]{24}\.arrow|history/([0-9a-f]{16})-[0-9a-f]{24}\.parquet)\Z")


def commit_key(now: Micros, token: str) -> str:
    """The key of a tier-1 blob whose writing begins at `now`; `token` is 24 hex digits of chance."""
    return f"{COMMITS}{now:016x}-{token}.arrow"


def history_key(now: Micros, token: str) -> str:
    """The key of a tier-2 file whose writing begins at `now`; `token` is 24 hex digits of chance."""
    return f"{HISTORY}{now:016x}-{token}.parquet"


def begun_at(key: str) -> Micros | None:
    """When the writing of a blob began, or None for a key that is not of this store's making."""
    match = _KEY.match(key)
    return Micros(int(match[1] or match[2], 16)) if match else None
