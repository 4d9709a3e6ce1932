"""`Stream-Cursor`: for a while, live readers that wait at the same offset send identical requests, so that a cache can
join them. Later the cursor changes, so that the cache does not return an outdated answer."""

from __future__ import annotations

import random
import time
from typing import Final

_INTERVAL_S: Final = 20
_EPOCH_S: Final = 1_728_432_000  # 2024-10-09, as the protocol has it
_JITTER_S: Final = 3_600


def response_cursor(asked: str | None) -> str:
    """The number of the present interval, but always later than the number that the caller sent."""
    now = int((time.time() - _EPOCH_S) // _INTERVAL_S)
    if asked is None or not (asked.isascii() and asked.isdigit() and len(asked) < 16) or int(asked) < now:
        return str(now)
    return str(int(asked) + random.randint(1, _JITTER_S // _INTERVAL_S))
