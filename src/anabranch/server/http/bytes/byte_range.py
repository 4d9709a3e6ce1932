"""Which bytes a download asks for."""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers

from anabranch.server.http.problem import HttpRefusal

_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


def requested_range(headers: Headers, size: int, tag: str) -> tuple[int, int] | None:
    """The half-open range that `Range` asks of `size` bytes whose ETag is `tag`; None for all of them: without a range,
    with several or one of another unit, and where `If-Range` names another state. Raises HttpRefusal (416) if it holds
    no byte."""
    match = _RANGE.fullmatch(headers.get("range", ""))
    if match is None or headers.get("if-range", tag) != tag:
        return None
    first, last = match.groups()
    if not first and not last:
        return None
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= stop:
        raise HttpRefusal(
            416,
            "range_not_satisfiable",
            f"there are {size:,} bytes: the range holds none",
            Content_Range=f"bytes */{size}",
        )
    return start, stop
