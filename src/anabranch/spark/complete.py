"""Reading up to where a stream is complete: the option `end` = `watermark`."""

from __future__ import annotations

from typing import Final

from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.spark.stores import Opened

WATERMARK: Final = "watermark"


def complete_cut(opened: Opened, stream: StreamName) -> StreamCut:
    """The cut of the stream's watermark, behind which nothing older follows. To be asked for ahead of the view that it is
    used with: so that knows of its segments. Raises InvalidArgument for a stream without one, StreamNotFound."""
    mark = opened.store.watermark(stream)
    if mark is None:
        raise InvalidArgument(
            f"'{stream}' has no watermark to end at: none of its writers has noted a time (writer.note_time, or note_time_s= "
            "of store.writer)"
        )
    return mark.cut


def readable(view: StreamView, cut: StreamCut) -> StreamCut:
    """The cut, or the head where it was truncated."""
    return cuts.raised(view, cut) if cuts.below_head(view, cut.as_dict()) else cut
