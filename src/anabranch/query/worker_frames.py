"""The frames between a broker and a process that runs its queries: a byte for the kind, the length in 4 bytes
(little-endian), and the content. Apart from `worker`, which loads the query engine: a broker doesn't need it."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["BATCH", "DONE", "FAILED", "HEADER", "REQUEST", "SCHEMA", "TEXT"]

HEADER: Final = struct.Struct("<cI")
REQUEST: Final = b"Q"
SCHEMA: Final = b"S"  # with the number of parameters in the first 4 bytes
BATCH: Final = b"B"
TEXT: Final = b"T"
DONE: Final = b"D"
FAILED: Final = b"F"
