"""The names of the columns that events have on their way through the operator, beside their own."""

from __future__ import annotations

from typing import Final

__all__ = ["COUNT_WINDOW", "KEY", "NUMBER", "OFFSET", "ORDER", "PANE", "SEGMENT", "SESSION_WINDOW", "TIME", "WINDOW"]

KEY: Final = "_anabranch_key_"
"""Followed by a number: a part of the key."""
TIME: Final = "_anabranch_time"
SEGMENT: Final = "_anabranch_segment"
OFFSET: Final = "_anabranch_offset"
COUNT_WINDOW: Final = "count_window"
WINDOW: Final = "window"
SESSION_WINDOW: Final = "session_window"
PANE: Final = "pane"
NUMBER: Final = "_anabranch_window"
"""Tells windows apart whose events have the same times."""
ORDER: Final = "_anabranch_order"
"""Of a result: those with the same key are in this order."""
