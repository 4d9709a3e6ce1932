"""The offsets that a checkpoint keeps."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidArgument
from anabranch.spark.source.offsets import Marker, SourceOffset

OLD = {
    "stream": "iot/sensors",
    "origin": "778b8c7cd8b71763:0000000000000000@0",
    "cut": "778b8c7cd8b71763:0000000000000000@514",
}


def test_an_offset_without_a_keep_rate_is_read_and_written_as_before() -> None:
    offset = SourceOffset.from_json(OLD)
    assert offset.keep_rate == 1
    assert offset.to_json() == OLD


def test_a_keep_rate_is_that_of_the_batch_that_ends_at_the_offset() -> None:
    offset = SourceOffset.from_json(OLD)
    shed = offset.at(offset.cut, 0.3333)
    assert shed.to_json() == {**OLD, "keepRate": "0.3333"}
    assert SourceOffset.from_json(shed.to_json()) == shed
    assert shed.marked(Marker(1, 5)).keep_rate == 0.3333
    assert shed.at(offset.cut).to_json() == OLD
    with pytest.raises(InvalidArgument, match="no position"):
        SourceOffset.from_json({**OLD, "keepRate": "half"})
