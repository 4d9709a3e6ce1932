"""The batches that an intake yields."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from anabranch.model.columns import RESERVED

ADDED = (*RESERVED, "_pointer")  # columns that reading adds, so that what was read can be written again


class IntakeBatch(NamedTuple):
    """Rows of a stream's columns, or some of them. `place(i)` is where row i was found: `line 17`."""

    rows: pa.Table
    place: Callable[[int], str]


def without_added(table: pa.Table) -> pa.Table:
    """Returns the table without the columns that reading adds."""
    return table.drop_columns([name for name in table.column_names if name in ADDED])
