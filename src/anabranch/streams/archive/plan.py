"""What is to be archived of a stream, fixed before anything is written: what the metadata says of it, and its files.

Files end where blocks of the digest do, at about `limits.PARQUET_BYTES_MAX` of logical bytes, so that each can be written,
read back and kept by itself; only a block of so large events that a file must not hold it lies in several. Where each ends follows from what lies before it alone: what is appended meanwhile changes
the last file of a segment only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.core.archive import ArchivedSegment, ArchivedStream, file_name, folder_name
from anabranch.core.digest import BLOCK_ROWS, segment_digest
from anabranch.core.stretch import Piece
from anabranch.log.sizes import segment_bytes
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream import Segment, StreamView
from anabranch.streams.archive.export import Chosen
from anabranch.streams.archive.files import Part, ReadFile, Summed, blocks_of


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """A stream without its segments, as the metadata will tell it; the segments, each with the offset behind what is
    archived of it; and what each data file is to hold."""

    stream: ArchivedStream
    segments: tuple[tuple[Segment, int], ...]
    ranges: tuple[SegmentRange, ...]

    @property
    def events(self) -> int:
        """How many events it holds."""
        return sum(each.events for each in self.ranges)

    @property
    def bytes(self) -> int:
        """About how many logical bytes these are."""
        return sum(each.bytes for each in self.ranges)

    @property
    def folder(self) -> str:
        """Where its data files lie in the archive."""
        return folder_name(self.stream.name, self.stream.id)

    def part(self, segment: SegmentId) -> Part:
        """What a data file of a segment holds: all of them have the newest columns."""
        return Part(self.stream.id, segment, self.stream.schemas[-1], len(self.stream.schemas))

    def file_name(self, range_: SegmentRange) -> str:
        """The name of the file that holds a range."""
        return file_name(self.folder, range_.segment, range_.start)

    def archived(self, files: Sequence[Summed], read: ReadFile) -> ArchivedStream:
        """The stream with its files, those of `ranges` in their order. `read`: see `blocks_of`."""
        of_segment: dict[SegmentId, list[Summed]] = {}
        for range_, summed in zip(self.ranges, files, strict=True):
            of_segment.setdefault(range_.segment, []).append(summed)
        return replace(
            self.stream,
            segments=tuple(_archived(*each, of_segment.get(each[0].id, ()), read) for each in self.segments),
        )

    def to_json(self) -> dict[str, Any]:
        """As the catalog keeps it."""
        return {
            "stream": self.stream.to_json(),
            "segments": [
                [s.id.packed, s.range.low, s.range.high, s.retired, s.head, stop] for s, stop in self.segments
            ],
            "ranges": [[each.segment.packed, each.start, each.stop, each.bytes] for each in self.ranges],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArchivePlan:
        """The inverse of `to_json`."""
        return cls(
            ArchivedStream.from_json(value["stream"]),
            tuple(
                (Segment(SegmentId.unpack(ident), KeyRange(low, high), retired, head), stop)
                for ident, low, high, retired, head, stop in value["segments"]
            ),
            tuple(SegmentRange(SegmentId.unpack(ident), *rest) for ident, *rest in value["ranges"]),
        )


def plan_archive(txn: Reading, chosen: Chosen) -> ArchivePlan:
    """How a stream is archived. A few look-ups for each file."""
    stretch, info = chosen.stretch, chosen.stretch.view.info
    stream = ArchivedStream(
        info.name,
        info.id,
        chosen.schemas,
        dict(info.tags),
        info.created_at,
        chosen.sealed,
        info.epoch,
        info.next_number,
        stretch.appended_at,
        stretch.start,
        stretch.end,
        (),
        chosen.more,
    )
    ranges = tuple(each for piece in stretch.pieces for each in _ranges(txn, stretch.view, piece))
    return ArchivePlan(stream, tuple((piece.segment, piece.stop) for piece in stretch.pieces), ranges)


def _archived(segment: Segment, stop: int, files: Sequence[Summed], read: ReadFile) -> ArchivedSegment:
    blocks = blocks_of(files, read)
    digest = segment_digest(segment.id, segment.range, segment.head, stop, blocks)
    return ArchivedSegment(segment, digest, tuple(summed.file for summed in files))


def _ranges(txn: Reading, view: StreamView, piece: Piece) -> Iterator[SegmentRange]:
    segment, start = piece.segment.id, piece.segment.head

    def size(stop: int) -> int:
        return segment_bytes(txn, view, segment, start, stop)

    while start < piece.stop:
        first, last = start // BLOCK_ROWS + 1, -(-piece.stop // BLOCK_ROWS)
        if start % BLOCK_ROWS and start > piece.segment.head:
            last = first  # the rest of a block that lies in several files
        # The first end of a block behind which the file weighs enough.
        number = _first(first, last, lambda each: size(each * BLOCK_ROWS) >= limits.PARQUET_BYTES_MAX)
        if number > first and size(min(number * BLOCK_ROWS, piece.stop)) > limits.ARCHIVE_FILE_BYTES_MAX:
            number -= 1
        stop = min(number * BLOCK_ROWS, piece.stop)
        if size(stop) > limits.ARCHIVE_FILE_BYTES_MAX:
            stop = _first(start + 1, stop, lambda each: size(each + 1) > limits.ARCHIVE_FILE_BYTES_MAX)
        yield SegmentRange(segment, start, stop, size(stop))
        start = stop


def _first(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The first number from `low` on that fits, as all behind it do; `high` where none before it does."""
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return low
