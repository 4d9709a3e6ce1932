"""Times written as text."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE
from anabranch.model.times import to_micros

DATE_PATTERN: Final = r"^\d{4}-\d\d-\d\d$"
TIME_PATTERN: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$"
_FORMS: Final = (TIME_TYPE, pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.timestamp("ns"))
_INTEGER = re.compile(r"-?\d+\Z")


class NoTime(Exception):
    """Row `row` holds no time."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def to_times(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """ISO 8601 texts, or µs since 1970, as timestamps of `kind`; without a zone they are UTC. Raises NoTime."""
    for form in _FORMS:
        # Fast where all are of one form, as they nearly always are.
        with suppress(pa.ArrowInvalid):
            times = texts.cast(form)
            if form.tz is None and kind.tz is not None:
                times = pc.assume_timezone(times, "UTC")
            return times.cast(kind, safe=False)
    micros = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            micros.append(None if text is None else to_micros(int(text) if _INTEGER.match(text) else text.strip()))
        except InvalidArgument as exc:
            raise NoTime(row, str(exc)) from exc
    return pa.chunked_array([pa.array(micros, pa.int64()).cast(TIME_TYPE)]).cast(kind)
