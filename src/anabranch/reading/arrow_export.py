"""Tables as DataFrames. pandas and polars are imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.errors.optional import optional

if TYPE_CHECKING:
    import pandas
    import polars


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """A table as a DataFrame of pandas. Raises MissingExtra without pandas."""
    with optional("to_pandas()", package="pandas"):
        import pandas
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame), "a table becomes a frame"
    return frame


def to_polars(table: pa.Table) -> polars.DataFrame:
    """A table as a DataFrame of polars, without a copy where polars can use Arrow's memory. Raises MissingExtra without
    polars."""
    with optional("to_polars()", package="polars"):
        import polars
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame), "a table becomes a frame"
    return frame
