"""RowGroups rows by several columns of any plain type. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["RowGroups", "codes_of", "group"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Rows by group: `order` are the rows' indices, group after group, in each in their given order. Group g has
    `counts[g]` rows, from `starts[g]` on in `order`."""

    order: Numbers
    starts: Numbers
    counts: Numbers

    @property
    def positions(self) -> Numbers:
        """The place within its group of each row in `order`, from 0."""
        return np.arange(len(self.order)) - np.repeat(self.starts, self.counts)


def codes_of(columns: Sequence[pa.ChunkedArray]) -> Numbers:
    """A number for each row: equal for rows with equal values in all columns. Nulls are equal to each other, so are NaNs,
    and so are 0.0 and -0.0."""
    codes: Numbers | None = None
    for column in columns:
        if pa.types.is_floating(column.type):
            values = column.to_numpy(zero_copy_only=False) + 0.0  # of -0.0 it makes 0.0
            column = pa.chunked_array([pa.array(values, column.type, mask=column.is_null().to_numpy())])
        found = column.combine_chunks().dictionary_encode(null_encoding="encode")
        own = found.indices.to_numpy().astype(np.int64)
        if codes is None:
            codes = own
        else:  # numbered anew, so that the product stays small
            codes = np.unique(codes * (len(found.dictionary) + 1) + own, return_inverse=True)[1].astype(np.int64)
    assert codes is not None, "rows are grouped by at least one column"
    return codes


def group(codes: Numbers) -> RowGroups:
    """The rows by their codes, the groups in the order of these."""
    order = np.argsort(codes, kind="stable").astype(np.int64)
    ranked = codes[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else np.empty(0, np.int64)
    return RowGroups(order, starts.astype(np.int64), np.diff(np.r_[starts, len(ranked)]).astype(np.int64))
