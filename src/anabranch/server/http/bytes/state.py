"""The state of an upload at one moment: a byte stream, and what its tags say. It is finished once the stream is sealed. Until then
its stream is ephemeral, held in the upload's name up to its expiry, so upkeep removes it as it removes any stream that nothing
holds any more."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from email.utils import formatdate
from typing import Final, NamedTuple

from anabranch.catalog.port import Writing
from anabranch.catalog.state.ephemeral import Holder
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamInfo
from anabranch.server.broker import Broker
from anabranch.server.http.bytes.headers import NewUpload
from anabranch.server.http.front import HttpFront
from anabranch.server.http.problem import HttpRefusal
from anabranch.store.facade import Store
from anabranch.streams.directory.find import need_info
from anabranch.streams.lifecycle.holders import holders_of, put_holders
from anabranch.streams.requests import Result

FILE_NAME: Final = "file.name"
FILE_TYPE: Final = "file.type"
_LENGTH: Final = "upload.length"
_SHA256: Final = "upload.sha256"
_REFUSED: Final = "upload.refused"
_UNKNOWN: Final = "unknown"
_UPLOAD: Final = "upload"  # the holder's token


class Upload(NamedTuple):
    """A byte stream at one moment: it holds the bytes `head <= position < offset`."""

    info: StreamInfo
    head: int
    offset: int
    expires: Micros | None

    @property
    def length(self) -> int | None:
        """The length of the whole file, if it is known."""
        text = self.info.tags.get(_LENGTH, _UNKNOWN)
        return self.offset if self.info.sealed else int(text) if text.isascii() and text.isdigit() else None

    @property
    def sha256(self) -> str | None:
        """The digest that the whole file has to have, in hex."""
        return self.info.tags.get(_SHA256)

    @property
    def complete(self) -> bool:
        """Whether nothing can be appended any more."""
        return self.info.sealed

    @property
    def unfinished(self) -> bool:
        """Whether it was begun as an upload, and is not finished. Any other byte stream is read while it grows."""
        return not self.info.sealed and _LENGTH in self.info.tags

    def headers(self) -> dict[str, str]:
        """`Upload-Offset`, `Upload-Length` where it is known, `Upload-Complete`, and `Upload-Expires` where it does."""
        length = {} if self.length is None else {"Upload-Length": str(self.length)}
        expires = {} if self.expires is None else {"Upload-Expires": formatdate(self.expires / 1e6, usegmt=True)}
        complete = "?1" if self.complete else "?0"
        return {"Upload-Offset": str(self.offset), **length, "Upload-Complete": complete, **expires}


def tags_of(asked: NewUpload) -> dict[str, str]:
    """The tags of a new upload."""
    found = {_LENGTH: _UNKNOWN if asked.length is None else str(asked.length)}
    more = {FILE_NAME: asked.file_name, FILE_TYPE: asked.file_type, _SHA256: asked.sha256}
    return found | {name: value for name, value in more.items() if value is not None}


def load(front: HttpFront, name: str) -> Upload:
    """The upload as of now. One that has all its bytes is finished here, wherever its last request broke off. Raises
    StreamNotFound, InvalidArgument for a stream of another kind, HttpRefusal if its bytes do not match its digest, or
    if it has expired."""
    info = front.store.streams.get(name)
    found = _as_of_now(front.store, info)
    if (reason := info.tags.get(_REFUSED)) is not None:
        raise _refusal(reason)
    if found.unfinished and found.offset == found.length:
        return finish(front, found)
    if found.unfinished and found.expires is not None and found.expires <= front.store.runtime.clock.now():
        raise HttpRefusal(410, "upload_expired", "the upload was not finished in time and was removed: start again")
    return found


def expect(front: HttpFront, upload: Upload, *, length: int | None = None, sha256: str | None = None) -> Upload:
    """Note the length and the digest of the whole file, which come late. Raises HttpRefusal if others were noted."""
    for given, known, header in ((length, upload.length, "Upload-Length"), (sha256, upload.sha256, "Repr-Digest")):
        if given is not None and known is not None and given != known:
            raise HttpRefusal(409, "upload_differs", f"{header} is {given}, and was {known} before")
    late = {_LENGTH: None if length is None else str(length), _SHA256: sha256}
    new = {name: value for name, value in late.items() if value is not None and upload.info.tags.get(name) != value}
    return upload._replace(info=_tag(front.store, upload.info, new)) if new and not upload.complete else upload


def finish(front: HttpFront, upload: Upload) -> Upload:
    """Verify the digest, if there is one, by reading what is stored, and seal the stream. Raises HttpRefusal (422) for
    other bytes: they can't be read as the file, and nothing can be appended."""
    if upload.sha256 is not None and (found := _digest(front.store, upload)) != upload.sha256:
        reason = f"the {upload.offset} stored bytes have the sha-256 {found}, not {upload.sha256}"
        _tag(front.store, upload.info, {_REFUSED: reason})
        raise _refusal(reason)
    if upload.expires is not None:
        front.store.ephemeral.keep(upload.info.id)  # before the seal, behind which it would be a file that expires
    front.store.streams.seal(upload.info.id)
    return _as_of_now(front.store, front.store.streams.get(upload.info.id))


def _as_of_now(store: Store, info: StreamInfo) -> Upload:
    index = store._byte_streams.index(info.id)
    return Upload(info, index.head(), index.tail(), None if info.sealed else expires_at(store, info.id))


def _digest(store: Store, upload: Upload) -> str:
    found = hashlib.sha256()
    for chunk in store._byte_streams.index(upload.info.id).chunks_at(0):
        found.update(chunk.data)
    return found.hexdigest()


def _tag(store: Store, info: StreamInfo, new: Mapping[str, str]) -> StreamInfo:
    return store.streams.tag(info.id, {**info.tags, **new})


def _refusal(reason: str) -> HttpRefusal:
    return HttpRefusal(422, "digest_mismatch", f"{reason}: delete the upload and begin again")


def expires_at(store: Store, stream: StreamId) -> Micros | None:
    """When the upload expires; None if it never does. Raises StreamNotFound."""
    return next((each.until for each in store.ephemeral.holders(stream) if each.token == _UPLOAD), None)


def prolong(broker: Broker, stream: StreamId, expires: Micros | None) -> Micros | None:
    """Restart the lifetime if it has not begun, or is half over; returns when the upload expires. Raises StreamNotFound."""
    store, lifetime_s = broker.store, broker.upload_lifetime_s
    if lifetime_s is None:
        return expires
    lifetime = round(lifetime_s * 1_000_000)
    if expires is not None and expires - store.runtime.clock.now() > lifetime // 2:
        return expires

    def change(txn: Writing, now: Micros) -> Result:
        info = need_info(txn, stream)
        others = (each for each in holders_of(txn, info.id) or () if each.token != _UPLOAD)
        until = Micros(now + lifetime)
        put_holders(txn, info.id, (*others, Holder(_UPLOAD, "an unfinished upload", now, until)))
        return {"until": until}

    found = store.changes.apply(f"prolong upload {stream:016x}", None, change, on=stream)
    return Micros(int(str(found["until"])))
