"""An upload: created by POST, appended to by PATCH at the offset that HEAD gives, and cancelled by DELETE. It is finished,
and can be downloaded, once all its bytes are durable."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from starlette.responses import Response

from anabranch import limits
from anabranch.core.byte_stream import BYTES
from anabranch.errors import AnabranchError, TooLarge
from anabranch.server.calls import allowed_stream
from anabranch.server.http.bytes import headers as upload_headers
from anabranch.server.http.bytes.download import download_headers
from anabranch.server.http.bytes.state import Upload, expect, finish, load, prolong, tags_of
from anabranch.server.http.calls import verb_result
from anabranch.server.http.front import HttpCall, stream_of
from anabranch.server.http.problem import HttpRefusal, draining
from anabranch.wire.values import to_json
from anabranch.writing.byte_writer import ByteWriter

_EXTENSIONS = "creation,creation-with-upload,creation-defer-length,checksum,expiration,termination"


async def upload_options(call: HttpCall) -> Response:
    """The version and the extensions of tus that are served."""
    del call
    offered = {
        "Tus-Version": upload_headers.TUS,
        "Tus-Extension": _EXTENSIONS,
        "Tus-Max-Size": str(limits.UPLOAD_BYTES_MAX),
    }
    return Response(
        status_code=204,
        headers={**offered, "Tus-Checksum-Algorithm": ",".join(upload_headers.CHECKSUMS), "Allow": _ALLOW},
    )


_ALLOW = "DELETE, GET, HEAD, OPTIONS, PATCH, POST"


async def create_upload(call: HttpCall) -> Response:
    """Upload a file, or start an upload. It creates a byte stream, and stores the body as its first bytes; without
    `Upload-Length` and `Upload-Defer-Length` the body is the whole file."""
    headers, front, name = call.request.headers, call.front, stream_of(call.request)
    upload_headers.check_version(headers)
    upload_headers.check_encoding(headers)
    asked = upload_headers.new_upload(headers)
    front.guard.authorize(call.principal, "write", name, verb="create_upload")
    arguments = {"name": name, "schema": to_json(BYTES.columns), "time": BYTES.time, "tags": tags_of(asked)}
    await verb_result(call, "streams.create", arguments)
    front.names.forget(name)
    upload = await front.run(lambda: load(front, name))
    # An upload that has bytes already was created by an earlier request with the same Idempotency-Key.
    if not upload.offset and not upload.complete:
        upload = await _append(call, upload, complete=asked.complete)
    answer = {"Location": call.request.scope["path"], **upload.headers()}
    return Response(status_code=201, headers=answer)


async def head_bytes(call: HttpCall) -> Response:
    """The offset of an upload, or the headers of a download. The offset is how many bytes are durable."""
    upload = await call.front.run(lambda: load(call.front, str(call.info.name)))
    answer = {**upload.headers(), "Cache-Control": "no-store"}
    if upload.unfinished:
        return Response(status_code=204, headers=answer)
    return Response(status_code=200, headers={**download_headers(upload), **answer})


async def append_upload(call: HttpCall) -> Response:
    """Continue an upload at its offset. The body is stored at `Upload-Offset`, which is where the upload ends; what comes is
    durable when it is answered, and also where the connection is lost. A request that was under way before can store
    nothing from then on."""
    headers, front = call.request.headers, call.front
    upload_headers.check_version(headers)
    upload_headers.check_encoding(headers)
    offset, length, complete = (
        upload_headers.upload_offset(headers),
        upload_headers.upload_length(headers),
        upload_headers.upload_complete(headers),
    )
    sha256 = upload_headers.sha256_of(headers)
    upload = await front.run(lambda: load(front, str(call.info.name)))
    _check_offset(upload, offset)
    upload = await front.run(lambda: expect(front, upload, length=length, sha256=sha256))
    upload = await _append(call, upload, complete=bool(complete))
    return Response(status_code=204, headers=upload.headers())


async def cancel_upload(call: HttpCall) -> Response:
    """Delete an upload, finished or not."""
    front, name = call.front, stream_of(call.request)
    info = await front.run(lambda: allowed_stream(front.broker, call.principal, name, "manage", "cancel_upload"))
    # Raises for a stream that is not a byte stream; the index itself is not needed.
    await front.run(lambda: front.store._byte_streams.index(info.id))
    await verb_result(call, "streams.delete", {"name": name})
    front.names.forget(name)
    return Response(status_code=204)


async def _append(call: HttpCall, upload: Upload, *, complete: bool) -> Upload:
    """Append the body, and finish the upload if the body completes it."""
    front = call.front
    if upload.unfinished:
        expires = await front.run(lambda: prolong(front.broker, upload.info.id, upload.expires))
        upload = upload._replace(expires=expires)
    left = (limits.UPLOAD_BYTES_MAX if upload.length is None else upload.length) - upload.offset
    sent = upload_headers.content_length(call.request.headers)
    if sent is not None and sent > left:
        raise TooLarge("the body of an upload", sent, left)
    if sent != 0 and not upload.complete:
        upload = await _append_body(call, upload, left)
    if upload.unfinished and (complete or upload.offset == upload.length):
        if upload.length not in (None, upload.offset):
            raise HttpRefusal(
                409, "upload_differs", f"Upload-Length is {upload.length}, and the upload ends at {upload.offset}"
            )
        return await front.run_long(lambda: finish(front, upload))
    return upload


async def _append_body(call: HttpCall, upload: Upload, left: int) -> Upload:
    front, guard, checksum = call.front, call.front.guard, upload_headers.checksum_of(call.request.headers)
    memory = limits.UPLOAD_MEMORY_BYTES if checksum is None else limits.HTTP_BODY_BYTES_MAX
    with guard.hold(call.principal, "connections"), guard.hold(call.principal, "memory", memory):
        body = None if checksum is None else await _whole_body(call)
        if checksum is not None and body is not None:
            checksum.verify(body)
        writer = await front.run(lambda: front.store._byte_streams.append_to(upload.info.id))
        try:
            if writer.tell() != upload.offset:  # another request stored more before this one fenced it off
                _check_offset(upload._replace(offset=writer.tell()), upload.offset)
            if body is None:
                await _store_body(call, writer, bytes_max=left)
            elif body:
                await front.run(partial(_write_part, writer, body))
            return upload._replace(offset=writer.tell())
        finally:
            await front.run(partial(_close, writer))


async def _store_body(call: HttpCall, writer: ByteWriter, *, bytes_max: int) -> None:
    """Append the body; returns once all of it is durable. A part is written while the next one is received. After
    an error, the parts before it stay appended. Raises ClientDisconnect, RateLimited, TooLarge for a body over
    `bytes_max`, HttpRefusal if the broker stops, and what the writer raises."""
    part = bytearray()
    writing: asyncio.Future[None] | None = None
    taken = 0
    try:
        async for piece in call.request.stream():
            if call.front.draining:
                raise draining()
            call.front.guard.admit(call.principal, calls=0, bytes_=len(piece))
            taken += len(piece)
            part += piece[: len(piece) - max(0, taken - bytes_max)]
            if taken > bytes_max:
                raise TooLarge("the body of an upload", taken, bytes_max)
            if len(part) >= limits.UPLOAD_PART_BYTES:
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(call.front.run(partial(_write_part, writer, bytes(part))))
                part.clear()
    finally:
        if writing is not None:
            await writing
        if part:
            await call.front.run(partial(_write_part, writer, bytes(part)))


async def _whole_body(call: HttpCall) -> bytes:
    """The body, which is to be verified before any of it is stored. Raises TooLarge, ClientDisconnect, RateLimited."""
    body = bytearray()
    async for piece in call.request.stream():
        call.front.guard.admit(call.principal, calls=0, bytes_=len(piece))
        body += piece
        if len(body) > limits.HTTP_BODY_BYTES_MAX:
            raise TooLarge("a body with a checksum", len(body), limits.HTTP_BODY_BYTES_MAX)
    return bytes(body)


def _write_part(writer: ByteWriter, part: bytes) -> None:
    """Append a part; returns once it is durable."""
    writer.write(part)
    writer.flush()


def _close(writer: ByteWriter) -> None:
    """Close a writer whose errors were raised."""
    with suppress(AnabranchError):
        writer.close()


def _check_offset(upload: Upload, offset: int) -> None:
    if offset != upload.offset:
        found = {name.replace("-", "_"): value for name, value in upload.headers().items()}
        raise HttpRefusal(
            409, "offset_mismatch", f"the upload has {upload.offset:,} bytes: Upload-Offset is not {offset:,}", **found
        )
