"""Arguments of the stream manager that are given as text."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidArgument
from anabranch.model.ids import SegmentId
from anabranch.streams.arguments import segment_id


def test_a_segment_is_its_epoch_and_number() -> None:
    assert segment_id("12.3") == segment_id(SegmentId(12, 3)) == SegmentId(12, 3)


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "-1.0", "1.0.0", "².3", "1.²", f"{'9' * 5_000}.1", "1 .0"])
def test_what_names_no_segment_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="expected a segment as epoch"):
        segment_id(text)
