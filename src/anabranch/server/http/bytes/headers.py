"""What the headers of an upload say: those of tus 1.0, and those of the IETF's draft."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from starlette.datastructures import Headers

from anabranch import limits
from anabranch.errors import InvalidArgument, TooLarge
from anabranch.server.http.body import media_type
from anabranch.server.http.problem import HttpRefusal

TUS: Final = "1.0.0"
CHECKSUMS: Final = ("sha1", "sha256")
_PARTS: Final = frozenset(("", "application/offset+octet-stream", "application/partial-upload"))
_REPR_DIGEST: Final = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]+):")
_FILE_CHARS_MAX: Final = 255


class NewUpload(NamedTuple):
    """The upload that a POST requests. `length` in bytes is None if it is not known yet; `complete` if the body ends
    the file; `sha256` is the digest of the whole file, in hex."""

    length: int | None
    complete: bool
    file_name: str | None
    file_type: str | None
    sha256: str | None


class Checksum(NamedTuple):
    """The digest of one request's body, as `Upload-Checksum` has it."""

    algorithm: str
    digest: bytes

    def verify(self, body: bytes) -> None:
        """Raises HttpRefusal with tus's status 460 if the body has another digest."""
        if hashlib.new(self.algorithm, body, usedforsecurity=False).digest() != self.digest:
            raise HttpRefusal(460, "checksum_mismatch", f"the body's {self.algorithm} is not that of Upload-Checksum")


def new_upload(headers: Headers) -> NewUpload:
    """The upload that the headers of a POST request. Raises InvalidArgument, TooLarge."""
    length, complete = upload_length(headers), upload_complete(headers)
    deferred = headers.get("upload-defer-length")
    if deferred not in (None, "1") or (deferred is not None and length is not None):
        raise InvalidArgument("expected Upload-Defer-Length as 1, without Upload-Length")
    if complete is None:
        complete = length is None and deferred is None
    if complete and length is None and (sent := content_length(headers)) is not None:
        length = _bounded(sent)
    metadata = _metadata(headers.get("upload-metadata", ""))
    kind = metadata.get("filetype") or metadata.get("type")
    if kind is None and media_type(headers) not in _PARTS:
        kind = headers["content-type"]
    return NewUpload(
        length,
        complete,
        _file_name(metadata.get("filename") or metadata.get("name")),
        file_type(kind),
        sha256_of(headers),
    )


def check_version(headers: Headers) -> None:
    """Raises HttpRefusal (412) for another version of tus."""
    version = headers.get("tus-resumable", TUS)
    if version != TUS:
        raise HttpRefusal(412, "unknown_version", f"expected Tus-Resumable {TUS}, got '{version:.20}'", Tus_Version=TUS)


def check_encoding(headers: Headers) -> None:
    """Raises HttpRefusal (415) for a compressed body: offsets count the bytes that are stored."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpRefusal(
            415, "unsupported_encoding", "an upload can't have a Content-Encoding: its offsets count stored bytes"
        )


def upload_offset(headers: Headers) -> int:
    """The offset in the file at which the body begins. Raises InvalidArgument."""
    text = headers.get("upload-offset")
    if text is None:
        raise InvalidArgument("expected Upload-Offset: the number of bytes the upload has, as returned by HEAD")
    return _number("Upload-Offset", text)


def upload_length(headers: Headers) -> int | None:
    """The length of the whole file, if it is given. Raises InvalidArgument, TooLarge."""
    text = headers.get("upload-length")
    return None if text is None else _bounded(_number("Upload-Length", text))


def upload_complete(headers: Headers) -> bool | None:
    """Whether the file ends with this body; None if the headers do not say. Raises InvalidArgument."""
    text = headers.get("upload-complete")
    if text not in (None, "?0", "?1"):
        raise InvalidArgument(f"expected Upload-Complete as ?0 or ?1, got '{text:.20}'")
    return None if text is None else text == "?1"


def checksum_of(headers: Headers) -> Checksum | None:
    """The digest of the body, if it is given. Raises InvalidArgument."""
    text = headers.get("upload-checksum")
    if text is None:
        return None
    algorithm, _, digest = text.strip().partition(" ")
    if algorithm not in CHECKSUMS:
        raise InvalidArgument(f"Upload-Checksum has one of {', '.join(CHECKSUMS)}, not '{algorithm:.20}'")
    return Checksum(algorithm, _from_base64("Upload-Checksum", digest))


def sha256_of(headers: Headers) -> str | None:
    """The digest of the whole file in `Repr-Digest`, in hex; None if the header has no SHA-256. Raises
    InvalidArgument."""
    match = _REPR_DIGEST.search(headers.get("repr-digest", ""))
    if match is None:
        return None
    digest = _from_base64("Repr-Digest", match[1])
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidArgument("expected the sha-256 in Repr-Digest as 32 bytes in base64")
    return digest.hex()


def repr_digest(sha256: str) -> str:
    """`Repr-Digest` of a digest in hex."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


def disposition(file_name: str) -> str:
    """`Content-Disposition` of a download: never shown by a browser as a page of this server."""
    plain = re.sub(r"[^ !#-\[\]-~]", "_", file_name)
    extended = "" if plain == file_name else f"; filename*=UTF-8''{quote(file_name, safe='')}"
    return f'attachment; filename="{plain}"{extended}'


def content_length(headers: Headers) -> int | None:
    """The length of the body, if it is given."""
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _metadata(text: str) -> Mapping[str, str]:
    """The pairs of `Upload-Metadata`: `key base64, key base64`. Raises InvalidArgument."""
    metadata = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        key, _, value = pair.partition(" ")
        try:
            metadata[key.lower()] = _from_base64("Upload-Metadata", value).decode()
        except UnicodeDecodeError as exc:
            raise InvalidArgument(f"'{key:.50}' in Upload-Metadata is expected to be UTF-8") from exc
    return metadata


def _file_name(name: str | None) -> str | None:
    """The last part of a path, without control characters."""
    if name is None:
        return None
    last = "".join(letter for letter in re.split(r"[/\\]", name)[-1] if letter.isprintable())
    return last[-_FILE_CHARS_MAX:] or None


def file_type(kind: str | None) -> str | None:
    """The media type; None if the text is not a media type: it must not be sent as a header then."""
    text = (kind or "").strip()
    return text if re.fullmatch(r"[!#$&^\w.+-]+/[!#$&^\w.+-]+[ -~]{0,100}", text, re.ASCII) else None


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"expected {name} as a number of bytes, got '{text:.50}'")
    return int(text)


def _bounded(length: int) -> int:
    if length > limits.UPLOAD_BYTES_MAX:
        raise TooLarge("an upload", length, limits.UPLOAD_BYTES_MAX)
    return length


def _from_base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except ValueError as exc:
        raise InvalidArgument(f"expected base64 in {name}, got '{text:.50}'") from exc
