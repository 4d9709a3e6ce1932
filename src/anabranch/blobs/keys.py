"""Keys of blobs: they name a blob's kind and the time at which its writing began.

    commits/<begun_at, 16 hex digits>-<token>.arrow      tier 1: group commits, staged uploads
    history/<begun_at, 16 hex digits>-<token>.parquet    tier 2: compacted files
    manifests/<begun_at, 16 hex digits>-<token>/         copies of the catalog: parts 00000000.arrow …, and an index
    attached/<begun_at, 16 hex digits>-<token>/<name>    an attached file, which the store never writes
    footers/<begun_at, 16 hex digits>-<token>/<name>     an attached file whose checksum covers its footer only

The time comes first, so that a listing in key order is in order of time and the collector can stop at its horizon.

Keys from outside (a manifest, a backup, an archive, a catalog of unknown origin) are parsed by `parse` or
`manifest_part`. Every adapter also refuses what `check_path` refuses, so that no key leads out of its root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from anabranch.errors import CorruptBlob
from anabranch.model.ids import Micros

COMMITS: Final = "commits/"
HISTORY: Final = "history/"
MANIFESTS: Final = "manifests/"
PREFIXES: Final = (COMMITS, HISTORY)  # of the blobs that hold events

_MANIFEST = re.compile(r"manifests/([0-9a-f]{16})-[0-9a-f]{24}/\Z")
ATTACHED: Final = ("attached/", "footers/")

_KEY = re.compile(r"(?:commits/([0-9a-f]{16})-[0-9a-f]{24}\.arrow|history/([0-9a-f]{16})-[0-9a-f]{24}\.parquet)\Z")
_ATTACHED = re.compile(r"(?:attached|footers)/(([0-9a-f]{16})-[0-9a-f]{24})/(.+)\Z", re.DOTALL)
_PART = re.compile(r"[0-9]{8}\.arrow\Z")
_SHOWN_CHARS_MAX: Final = 200


# A relative path of plain names: no empty one, no `.` or `..`, no NUL, no surrogates. Exception: undecodable bytes of
# file names (`\udc80` …), which attached files may have.
_NAME = r"(?!\.{1,2}(?:/|\Z))[^/\x00\ud800-\udc7f\udd00-\udfff]+"
_PATH = re.compile(rf"{_NAME}(?:/{_NAME})*\Z")
_FOLDER = re.compile(rf"(?:{_NAME}/)*(?:{_NAME})?\Z")


@dataclass(frozen=True, slots=True)
class BlobKey:
    """A parsed key of a blob that a catalog may refer to. `attachment` and `name` are set for attached files only."""

    text: str
    begun_at: Micros
    attachment: str | None = None
    name: str | None = None


def parse(text: object) -> BlobKey:
    """Parse an untrusted key. Accepts keys of commits, compacted files and attached files only. Raises CorruptBlob."""
    if isinstance(text, str):
        if match := _KEY.match(text):
            return BlobKey(text, Micros(int(match[1] or match[2], 16)))
        if (match := _ATTACHED.match(text)) and _PATH.match(match[3]):
            return BlobKey(text, Micros(int(match[2], 16)), match[1], match[3])
    raise CorruptBlob(_shown(text), "this is not the key of a blob of a store; the catalog or backup was tampered with")


def manifest_part(folder: str, text: object) -> str:
    """Check and return the key of a part of the manifest in `folder`, as read from its index. Raises CorruptBlob."""
    if isinstance(text, str) and text.startswith(folder) and _PART.match(text[len(folder) :]):
        return text
    raise CorruptBlob(manifest_index(folder), f"it names {_shown(text)}, which is not a part of this manifest")


def check_path(key: str) -> str:
    """Check that a key is a relative path that can't lead out of the root, and return it. Raises CorruptBlob."""
    if not _PATH.match(key):
        raise CorruptBlob(_shown(key), "a key is a relative path without empty names, '.', '..' and NUL")
    return key


def check_prefix(prefix: str) -> str:
    """Check that a prefix of keys is one of relative paths, and return it. Raises CorruptBlob."""
    if not _FOLDER.match(prefix):
        raise CorruptBlob(_shown(prefix), "a prefix of keys is a relative path without empty names, '.', '..' and NUL")
    return prefix


def _shown(text: object) -> str:
    return repr(text) if len(repr(text)) <= _SHOWN_CHARS_MAX else f"{repr(text)[:_SHOWN_CHARS_MAX]}…"


def commit_key(now: Micros, token: str) -> str:
    """The key of a tier-1 blob that is first written at `now`; `token` is 24 random hex digits."""
    return f"{COMMITS}{now:016x}-{token}.arrow"


def history_key(now: Micros, token: str) -> str:
    """The key of a tier-2 file that is first written at `now`; `token` is 24 random hex digits."""
    return f"{HISTORY}{now:016x}-{token}.parquet"


def begun_at(key: str) -> Micros | None:
    """When the writing of a blob began, or None for a key that the store has not made."""
    if match := _ATTACHED.match(key):
        return Micros(int(match[2], 16))
    match = _KEY.match(key)
    return Micros(int(match[1] or match[2], 16)) if match else None


def new_attachment_id(now: Micros, token: str) -> str:
    """The id of an attachment made at `now`; `token` is 24 random hex digits."""
    return f"{now:016x}-{token}"


def attached_key(attachment: str, name: str, *, footer: bool) -> str:
    """The key of an attached file. With `footer`, its checksum covers its footer only."""
    return f"{ATTACHED[footer]}{attachment}/{name}"


def is_attached(key: str) -> bool:
    """True for the key of an attached file."""
    return key.startswith(ATTACHED)


def split_attached(key: str) -> tuple[str, str] | None:
    """The attachment's id and the file's name in it; None for a key that is not an attached file's."""
    match = _ATTACHED.match(key)
    return (match[1], match[3]) if match else None


def has_footer_checksum(key: str) -> bool:
    """True if the file's checksum covers its footer only."""
    return key.startswith(ATTACHED[True])


def manifest_folder(now: Micros, token: str) -> str:
    """The prefix of the keys of a manifest that is first written at `now`."""
    return f"{MANIFESTS}{now:016x}-{token}/"


def manifest_index(folder: str) -> str:
    """The key of a manifest's index."""
    return f"{folder}index"


def manifest_begun_at(folder: str) -> Micros | None:
    """When the writing of a manifest began, or None for a folder that is not a manifest's."""
    match = _MANIFEST.match(folder)
    return Micros(int(match[1], 16)) if match else None
