"""A column of bytes that lie one after another in a buffer.

`pyarrow.array` is no way to make one from memoryviews: it never releases a memoryview that it converted, so what the
view refers to stays in memory for the life of the process (as of pyarrow 26).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def binary_column(data: ReadableBuffer, edges: Sequence[int]) -> pa.Array:
    """The values `data[edges[i] : edges[i + 1]]`. They are not copied: `data` must not change while the column exists."""
    bounds = pa.py_buffer(np.array(edges, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, bounds, pa.py_buffer(data)])
