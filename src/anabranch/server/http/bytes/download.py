"""`GET /v1/streams/{scope}/{name}/bytes`: a byte stream as a file, or a range of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from anabranch import limits
from anabranch.server.http.bytes.headers import disposition, file_type, repr_digest
from anabranch.server.http.bytes.state import FILE_NAME, FILE_TYPE, Upload, load
from anabranch.server.http.etags import names_tag
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal
from anabranch.server.rights import StreamRight
from anabranch.store.facade import Store

_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


async def download(call: HttpCall) -> Response:
    """Download a byte stream, or a range of it. It is sent from the head to the tail as of now. Ranges count from the head,
    whose position is in `Anabranch-Head`."""
    front, headers = call.front, call.request.headers
    upload = await front.run(lambda: load(front, str(call.info.name)))
    if upload.unfinished:
        raise HttpRefusal(
            409, "upload_unfinished", f"'{upload.info.name}' has {upload.offset:,} bytes: its upload is not finished"
        )
    tag, size = _tag(upload), upload.offset - upload.head
    answer = download_headers(upload)
    if "if-match" in headers and not names_tag(headers["if-match"], tag, weak=False):
        raise HttpRefusal(412, "changed", f"the ETag is {tag}")
    if "if-none-match" in headers and names_tag(headers["if-none-match"], tag, weak=True):
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": answer["Cache-Control"]})
    found = _requested_range(headers, size, tag)
    start, stop = (0, size) if found is None else found
    if found is not None:
        answer["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    answer["Content-Length"] = str(stop - start)
    content = _content(call, upload, upload.head + start, upload.head + stop)
    return StreamingResponse(content, 200 if found is None else 206, answer)


def download_headers(upload: Upload) -> dict[str, str]:
    """The headers of all bytes. Equal ETags always have equal bytes."""
    info = upload.info
    found = {
        "Content-Type": file_type(info.tags.get(FILE_TYPE)) or "application/octet-stream",
        "Content-Length": str(upload.offset - upload.head),
        "Content-Disposition": disposition(info.tags.get(FILE_NAME, info.name.name)),
        "Accept-Ranges": "bytes",
        "ETag": _tag(upload),
        "Cache-Control": "private, no-cache",
        "Anabranch-Head": str(upload.head),
    }
    return found if upload.sha256 is None or upload.head else {**found, "Repr-Digest": repr_digest(upload.sha256)}


def _requested_range(headers: Headers, size: int, tag: str) -> tuple[int, int] | None:
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


def _tag(upload: Upload) -> str:
    return f'"{upload.info.id:016x}-{upload.head}-{upload.offset}"'


async def _content(call: HttpCall, upload: Upload, start: int, stop: int) -> AsyncIterator[bytes]:
    """The bytes `start <= position < stop`. One chunk is in memory at a time; it waits until the caller took it."""
    if start >= stop:
        return
    front, guard = call.front, call.front.guard
    with guard.hold(call.principal, "connections"):
        parts = _parts(front.store, upload, start, stop)
        right = StreamRight(front.store, guard, call.principal, upload.info.id, "read", verb="read")
        while (part := await front.run(lambda: next(parts, None))) is not None:
            await front.recheck(right)
            guard.authorize(call.principal, "read", str(upload.info.name), verb="download")
            guard.admit(call.principal, calls=0, bytes_=len(part))
            for begin in range(0, len(part), limits.FOLLOW_SEND_BYTES):
                yield bytes(part[begin : begin + limits.FOLLOW_SEND_BYTES])


def _parts(store: Store, upload: Upload, start: int, stop: int) -> Iterator[memoryview]:
    for chunk in store._byte_streams.index(upload.info.id).chunks_at(start):
        yield memoryview(chunk.data).cast("B")[max(0, start - chunk.start) : stop - chunk.start]
        if chunk.stop >= stop:
            return
