"""The metadata file of an archive: writing it, reading it, and verifying the archive's files against it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.core.checksum import checksum
from anabranch.core.json_text import parse_json
from anabranch.errors import (
    BlobMissing,
    CorruptArchive,
    CorruptStore,
    FormatTooNew,
    NotFound,
)
from anabranch.errors.optional import optional
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.transfer.archives.data_files import DataFilePart, DigestedFile, blocks_of, read_back
from anabranch.transfer.archives.digest import SegmentPart, segment_digest
from anabranch.transfer.archives.format import (
    FORMAT,
    METADATA,
    Archive,
    ArchivedFile,
    ArchivedSegment,
    ArchivedStream,
    is_file_name,
    metadata_digest,
)

_SIGNED: Final = b"anabranch archive 1\n"  # prefix of the signed digest, so that no other message has the same bytes


class ArchiveFlaw(NamedTuple):
    """A file of an archive, by its path in the archive, and what is wrong with it."""

    file: str
    what: str


@dataclass(frozen=True, slots=True)
class FoundArchive:
    """An archive in a `place` (for display), with the digest of its metadata. `signed_by` is the public key of the
    signer, hex, or None."""

    place: str
    archive: Archive
    digest: str
    signed_by: str | None


def write_metadata(blobs: Blobs, place: str, archive: Archive, sign: str | None) -> FoundArchive:
    """Turn a place that holds all data files into an archive. Raises InvalidArgument for a bad key file,
    AlreadyExists."""
    document = archive.to_json()
    digest = metadata_digest(document)
    whole: dict[str, object] = {"anabranch": "archive", "format": FORMAT, "digest": digest, "archive": document}
    signed_by = None
    if sign is not None:
        made = _signing().sign(sign, _SIGNED + digest.encode())
        signed_by = made.public_key.hex()
        coded = {name: base64.b64encode(value).decode() for name, value in made._asdict().items()}
        whole["signature"] = {"algorithm": "ed25519", **coded}
    text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    blobs.put(METADATA, [text.encode()])
    return FoundArchive(place, archive, digest, signed_by)


def is_archive(blobs: Blobs) -> bool:
    """True if a place holds the metadata of an archive, be it damaged or not."""
    if not 0 < (blobs.size(METADATA) or 0) <= limits.METADATA_BYTES_MAX:
        return False
    try:
        whole = parse_json(blobs.get(METADATA).to_pybytes())
    except ValueError:
        return False
    return isinstance(whole, dict) and whole.get("anabranch") == "archive"


def read_metadata(blobs: Blobs, place: str, *, trusted: str | None = None) -> FoundArchive:
    """The archive in a place. `trusted` names a PEM file with a public key; the archive must be signed with its private
    key.

    Raises NotFound if there is none, or an unfinished one; CorruptArchive if the metadata was changed or lacks that
    signature; FormatTooNew, InvalidArgument, MissingExtra.
    """
    size = blobs.size(METADATA)
    if size is None:
        if any(is_file_name(info.key) for info in blobs.list()):
            raise NotFound(f"the archive in {place} was never finished: repeat the call to continue it")
        raise NotFound(f"no archive found in {place}")
    if size > limits.METADATA_BYTES_MAX:
        raise CorruptArchive(place, METADATA, f"holds {size:,} bytes, which no archive's metadata has")
    try:
        whole = parse_json(blobs.get(METADATA).to_pybytes() if size else b"")
    except ValueError as exc:
        raise CorruptArchive(place, METADATA, f"can't be read ({exc})") from exc
    version = whole.get("format") if isinstance(whole, dict) and whole.get("anabranch") == "archive" else None
    if not isinstance(version, int) or version < 1:
        raise CorruptArchive(place, METADATA, "is not the metadata of an archive")
    if version > FORMAT:
        raise FormatTooNew(f"the archive {place}", version, FORMAT)
    try:
        digest = metadata_digest(whole.get("archive"))
    except (RecursionError, ValueError) as exc:  # for example text that is not Unicode
        raise CorruptArchive(place, METADATA, f"can't be read ({exc})") from exc
    if digest != whole.get("digest"):
        raise CorruptArchive(place, METADATA, "was modified: its digest differs")
    signed_by = _signer(place, whole.get("signature"), digest)
    if trusted is not None:
        key = _signing().public_key(trusted).hex()
        if signed_by is None:
            raise CorruptArchive(place, METADATA, "is not signed")
        if signed_by != key:
            raise CorruptArchive(place, METADATA, f"is signed by another key, {signed_by}")
    try:
        archive = Archive.from_json(whole["archive"])
    except ValueError as exc:
        raise CorruptArchive(place, METADATA, f"is inconsistent ({exc})") from exc
    return FoundArchive(place, archive, digest, signed_by)


def signing_key(sign: str) -> None:
    """Check the key file before long work. Raises what signing with it would raise at the end: InvalidArgument,
    MissingExtra."""
    _signing().sign(sign, b"")


def _signer(place: str, document: Any, digest: str) -> str | None:
    if document is None:
        return None
    signing = _signing()
    try:
        key, signature = (base64.b64decode(document[name], validate=True) for name in ("public_key", "signature"))
        good = document["algorithm"] == "ed25519" and signing.is_signed(key, signature, _SIGNED + digest.encode())
    except (KeyError, TypeError, ValueError) as exc:
        raise CorruptArchive(place, METADATA, "has a signature that can't be read") from exc
    if not good:
        raise CorruptArchive(place, METADATA, "has a signature that does not match it")
    return str(key.hex())


def _signing() -> Any:
    with optional("a signed archive", "encryption"):
        from anabranch.runtime import signing
    return signing


# verifying files against the metadata


def listing_flaws(blobs: Blobs, archive: Archive) -> Iterator[ArchiveFlaw]:
    """Files that are missing, truncated, too long, or not part of the archive. Reads no file."""
    there = {info.key: info.size for info in blobs.list()}
    there.pop(METADATA, None)
    for file in archive.files:
        size = there.pop(file.name, None)
        if size is None:
            yield ArchiveFlaw(file.name, "is missing")
        elif size != file.size:
            yield ArchiveFlaw(file.name, f"holds {size:,} bytes, not {file.size:,}")
    for name in sorted(there):
        yield ArchiveFlaw(name, "does not belong to the archive")


def refuse_flaws(found: FoundArchive, flaws: Iterator[ArchiveFlaw]) -> None:
    """Raise CorruptArchive with the first flaw, if there is one."""
    flaw = next(flaws, None)
    if flaw is not None:
        raise CorruptArchive(found.place, *flaw)


def read_file(blobs: Blobs, place: str, file: ArchivedFile) -> Any:
    """A data file's bytes, verified to be those that were archived. Raises CorruptArchive."""
    try:
        if blobs.size(file.name) != file.size:  # a truncated file must not be mapped
            raise CorruptArchive(place, file.name, f"no longer holds {file.size:,} bytes")
        data = blobs.get(file.name)
    except BlobMissing as exc:
        raise CorruptArchive(place, file.name, "is missing") from exc
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise CorruptArchive(place, file.name, "was modified: its SHA-256 differs")
    if checksum(data) != file.checksum:
        raise CorruptArchive(place, METADATA, f"records another checksum of {file.name}")
    return data


def read_events(
    blobs: Blobs, place: str, stream: ArchivedStream, file: ArchivedFile
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The events of a data file of a stream, with their append times. Raises CorruptArchive, CorruptBlob."""
    reader = ParquetReader(file.name, read_file(blobs, place, file))
    yield from reader.read(0, reader.rows, stream.schemas[file.schema - 1].columns)


def verify(
    blobs: Blobs, found: FoundArchive, *, content: bool = True, progress: ProgressCallback = no_progress
) -> Iterator[ArchiveFlaw]:
    """Yield all that is wrong with an archive's files. Reads all their bytes; with `content` also decodes the events
    and recomputes the digests of segments. `progress` is called with bytes."""
    flaws = list(listing_flaws(blobs, found.archive))
    yield from flaws
    wrong = {flaw.file for flaw in flaws}
    done = 0
    for stream in found.archive.streams:
        for segment in stream.segments:
            summary: list[DigestedFile] | None = []
            for file in segment.files:
                part = part_of(stream, segment, file)
                flawed = () if file.name in wrong else tuple(_file_flaws(blobs, found, part, file, content, summary))
                yield from flawed
                if flawed or file.name in wrong:
                    summary = None
                done += file.size
                progress("verifying", done, found.archive.size)
            if (
                content
                and summary is not None
                and not _is_digest(segment.part, blocks_of(summary, partial(read_events, blobs, found.place, stream)))
            ):
                yield ArchiveFlaw(
                    METADATA, f"records another digest of segment {segment.part.segment} of '{stream.name}'"
                )


def _is_digest(part: SegmentPart, blocks: list[bytes]) -> bool:
    return segment_digest(part.segment, part.range, part.start, part.stop, blocks) == part


def _file_flaws(
    blobs: Blobs,
    found: FoundArchive,
    part: DataFilePart,
    file: ArchivedFile,
    content: bool,
    all_summed: list[DigestedFile] | None,
) -> Iterator[ArchiveFlaw]:
    try:
        data = read_file(blobs, found.place, file)
        if content:
            summary = read_back(file.name, data, part, file.start, file.stop)
            if all_summed is not None:
                all_summed.append(summary)
            document = summary.file
            if (document.stop, document.appended, document.events) != (file.stop, file.appended, file.events):
                yield ArchiveFlaw(METADATA, f"records another extent or other times of {file.name}")
    except CorruptArchive as exc:
        yield ArchiveFlaw(exc.file, exc.reason)
    except (CorruptStore, FormatTooNew) as exc:
        yield ArchiveFlaw(file.name, f"can't be read ({exc})")


def part_of(stream: ArchivedStream, segment: ArchivedSegment, file: ArchivedFile) -> DataFilePart:
    """What a data file of a segment holds according to the metadata."""
    return DataFilePart(stream.id, segment.segment.id, stream.schemas[file.schema - 1], file.schema)
