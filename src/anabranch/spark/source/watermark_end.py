"""The end of a read at a stream's watermark: the option `end` = `watermark`."""

from __future__ import annotations

from typing import Final

from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.store import Store

WATERMARK: Final = "watermark"


def complete_cut(opened: Store, stream: StreamName) -> StreamCut:
    """The cut of the stream's watermark, after which no event older than the watermark follows.

    Call it before loading the view that the cut is used with, so that the view contains the cut's segments. Raises
    InvalidArgument for a stream without a watermark, StreamNotFound.
    """
    mark = opened.watermarks.get(stream)
    if mark is None:
        raise InvalidArgument(
            f"'{stream}' has no watermark to end at: none of its writers has noted a time (writer.note_time, or note_time_s= "
            "of store.writer)"
        )
    return mark.cut


def raised_to_head(view: StreamView, cut: StreamCut) -> StreamCut:
    """The cut, raised to the head where events were truncated."""
    return cuts.clamp_to_head(view, cut) if cuts.below_head(view, cut.as_dict()) else cut
