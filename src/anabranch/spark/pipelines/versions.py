"""A stream read as the versions of its keys: each row with the times between which it is the newest of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window, functions

from anabranch.errors import InvalidSql
from anabranch.model.stream import StreamInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["VALID_FROM", "VALID_UNTIL", "with_versions"]

VALID_FROM: Final = "_valid_from"
VALID_UNTIL: Final = "_valid_until"
_NEVER: Final = "9999-12-31 00:00:00"


def with_versions(frame: DataFrame, info: StreamInfo, line: int) -> DataFrame:
    """The rows of a stream with `VALID_FROM`, their event time, and `VALID_UNTIL`, exclusive: that of the next row of
    their key, else the end of the year 9999. Of rows of a key with the same time the last one appended is valid. Rows
    without a time are left out. Raises InvalidSql if the stream has no key or no event time."""
    key, time = info.schema.key, info.schema.time
    if key is None or time is None:
        raise InvalidSql(
            f"VERSIONS needs a stream with a key and an event time; '{info.name}' lacks one of them", line=line
        )
    column = functions.col(f"`{time}`")
    # A key is in one segment at a time; a later segment has a higher number.
    rows = Window.partitionBy(functions.col(f"`{key}`")).orderBy(column, "_segment", "_offset")
    until = functions.coalesce(functions.lead(column).over(rows), functions.lit(_NEVER).cast("timestamp"))
    return frame.where(column.isNotNull()).withColumn(VALID_FROM, column).withColumn(VALID_UNTIL, until)
