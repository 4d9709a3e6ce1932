"""The endpoints of uploads and downloads."""

from __future__ import annotations

import re
from typing import Final

from anabranch.server.http.bytes.download import download
from anabranch.server.http.bytes.headers import TUS
from anabranch.server.http.bytes.upload import append_upload, cancel_upload, create_upload, head_bytes, upload_options
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.openapi_parts import BINARY, COUNT, KEY, TEXT, header_parameter, one_of

_PATH: Final = "/v1/streams/{scope}/{name}/bytes"
_FILE: Final = re.compile(r"/v1/streams/[^/]+/[^/]+/bytes")
# An uploaded file is never shown as a page of this server, whatever its type.
_HEADERS: Final = {
    "Tus-Resumable": TUS,
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
_BODY: Final = {"content": {"application/offset+octet-stream": {"schema": BINARY}, "*/*": {"schema": BINARY}}}


def is_upload(method: str, path: str) -> bool:
    """True if a request's body may be of any size, because it is stored while it arrives."""
    return method in ("POST", "PATCH") and _FILE.fullmatch(path) is not None


_LENGTH: Final = header_parameter("Upload-Length", COUNT, "Bytes of the whole file.")
_COMPLETE: Final = header_parameter("Upload-Complete", one_of("?0", "?1"), "Whether the file ends with this body.")
_CHECKSUM: Final = header_parameter(
    "Upload-Checksum", TEXT, "`sha1` or `sha256`, and the body's checksum in base64. It is verified first."
)
_DIGEST: Final = header_parameter(
    "Repr-Digest", TEXT, "`sha-256=:BASE64:` of the whole file. It is verified before the upload is finished."
)
_KEY: Final = header_parameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": 512},
    "Repeating the request with the same key returns the upload that exists.",
)

BYTES_ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *(
            "POST",
            _PATH,
            create_upload,
            {"201": {"description": "The upload exists; `Upload-Offset` bytes are durable."}},
        ),
        parameters=(
            _LENGTH,
            header_parameter("Upload-Defer-Length", one_of("1"), "The length comes later."),
            header_parameter("Upload-Metadata", TEXT, "`filename BASE64,filetype BASE64`."),
            *(_COMPLETE, _CHECKSUM, _DIGEST, _KEY),
        ),
        body=_BODY,
        headers=_HEADERS,
    ),
    Endpoint(
        *("PATCH", _PATH, append_upload, {"204": {"description": "`Upload-Offset` bytes are durable."}}, "write"),
        parameters=(
            {**header_parameter("Upload-Offset", COUNT, "How many bytes the upload has."), "required": True},
            *(_LENGTH, _COMPLETE, _CHECKSUM, _DIGEST),
        ),
        body=_BODY,
        headers=_HEADERS,
    ),
    Endpoint(
        *("HEAD", _PATH, head_bytes),
        answers={
            "200": {"description": "The file is complete."},
            "204": {"description": "The upload is not finished."},
        },
        operation="read",
        headers=_HEADERS,
    ),
    Endpoint(
        *("GET", _PATH, download),
        answers={
            "200": {"description": "All bytes.", "content": {"*/*": {"schema": {}}}},
            "206": {"description": "The range.", "content": {"*/*": {"schema": {}}}},
            "304": {"description": "As `If-None-Match` says."},
        },
        operation="read",
        parameters=(
            header_parameter(
                "Range",
                TEXT,
                "`bytes=FIRST-LAST`, `bytes=FIRST-`, `bytes=-COUNT`. With several ranges, all bytes are sent.",
            ),
            header_parameter("If-Range", TEXT, "An ETag: if it no longer matches, all bytes are sent."),
            header_parameter("If-None-Match", TEXT, "An ETag."),
            header_parameter("If-Match", TEXT, "An ETag."),
        ),
        headers=_HEADERS,
    ),
    Endpoint(
        *("DELETE", _PATH, cancel_upload, {"204": {"description": "It is deleted."}}),
        parameters=(KEY,),
        headers=_HEADERS,
    ),
    Endpoint(
        *("OPTIONS", _PATH, upload_options, {"204": {"description": "In the headers."}}),
        headers=_HEADERS,
        public=True,
    ),
)
