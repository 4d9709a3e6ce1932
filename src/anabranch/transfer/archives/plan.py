"""The plan of an archive, fixed before anything is written: what the metadata says of each stream, and its files.

Files end where blocks of the digest do, at about `limits.PARQUET_BYTES_MAX` of logical bytes, so that each can be
written, read back and kept independently. Only a block whose events are too large for one file spans several. The end
of a file depends only on what precedes it: events appended meanwhile change only the last file of a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.core.stream_slice import SegmentSlice
from anabranch.log.sizes import segment_bytes
from anabranch.model.ids import SegmentId
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream import Segment, StreamView
from anabranch.transfer.archives.data_files import DataFilePart, DigestedFile, ReadFile, blocks_of
from anabranch.transfer.archives.digest import BLOCK_ROWS, segment_digest
from anabranch.transfer.archives.export import ArchiveSelection
from anabranch.transfer.archives.format import ArchivedSegment, ArchivedStream, file_name, folder_name


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """A stream without its segments, as the metadata describes it; the segments, each with the offset after its last
    archived event; and the range that each data file holds."""

    stream: ArchivedStream
    segments: tuple[tuple[Segment, int], ...]
    ranges: tuple[SegmentRange, ...]

    @property
    def events(self) -> int:
        """The number of events it holds."""
        return sum(each.events for each in self.ranges)

    @property
    def bytes(self) -> int:
        """The approximate number of logical bytes it holds."""
        return sum(each.bytes for each in self.ranges)

    @property
    def folder(self) -> str:
        """The folder of its data files in the archive."""
        return folder_name(self.stream.name, self.stream.id)

    def part(self, segment: SegmentId) -> DataFilePart:
        """What a data file of a segment holds: all of them have the newest columns."""
        return DataFilePart(self.stream.id, segment, self.stream.schemas[-1], len(self.stream.schemas))

    def file_name(self, range_: SegmentRange) -> str:
        """The name of the file that holds a range."""
        return file_name(self.folder, range_.segment, range_.start)

    def archived(self, files: Sequence[DigestedFile], read: ReadFile) -> ArchivedStream:
        """The stream with its files, given in the order of `ranges`. For `read` see `blocks_of`."""
        of_segment: dict[SegmentId, list[DigestedFile]] = {}
        for range_, summary in zip(self.ranges, files, strict=True):
            of_segment.setdefault(range_.segment, []).append(summary)
        return replace(
            self.stream,
            segments=tuple(_archived_segment(*each, of_segment.get(each[0].id, ()), read) for each in self.segments),
        )


def plan_archive(txn: Reading, chosen: ArchiveSelection) -> ArchivePlan:
    """How a stream is archived. Costs a few look-ups per file."""
    stream_slice, info = chosen.stream_slice, chosen.stream_slice.view.info
    stream = ArchivedStream(
        info.name,
        info.id,
        chosen.schemas,
        dict(info.tags),
        info.created_at,
        chosen.sealed,
        info.epoch,
        info.next_number,
        stream_slice.appended_at,
        stream_slice.start,
        stream_slice.end,
        (),
        chosen.more,
    )
    ranges = tuple(each for piece in stream_slice.segments for each in _ranges(txn, stream_slice.view, piece))
    return ArchivePlan(stream, tuple((piece.segment, piece.stop) for piece in stream_slice.segments), ranges)


def _archived_segment(segment: Segment, stop: int, files: Sequence[DigestedFile], read: ReadFile) -> ArchivedSegment:
    blocks = blocks_of(files, read)
    digest = segment_digest(segment.id, segment.range, segment.head, stop, blocks)
    return ArchivedSegment(segment, digest, tuple(summary.file for summary in files))


def _ranges(txn: Reading, view: StreamView, piece: SegmentSlice) -> Iterator[SegmentRange]:
    segment, start = piece.segment.id, piece.segment.head

    def size(stop: int) -> int:
        return segment_bytes(txn, view, segment, start, stop)

    while start < piece.stop:
        first, last = start // BLOCK_ROWS + 1, -(-piece.stop // BLOCK_ROWS)
        if start % BLOCK_ROWS and start > piece.segment.head:
            last = first  # the rest of a block that spans several files
        # The first end of a block at which the file is large enough.
        number = _first(first, last, lambda each: size(each * BLOCK_ROWS) >= limits.PARQUET_BYTES_MAX)
        if number > first and size(min(number * BLOCK_ROWS, piece.stop)) > limits.ARCHIVE_FILE_BYTES_MAX:
            number -= 1
        stop = min(number * BLOCK_ROWS, piece.stop)
        if size(stop) > limits.ARCHIVE_FILE_BYTES_MAX:
            stop = _first(start + 1, stop, lambda each: size(each + 1) > limits.ARCHIVE_FILE_BYTES_MAX)
        yield SegmentRange(segment, start, stop, size(stop))
        start = stop


def _first(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The first number from `low` on that fits; `high` if none before it does. Requires that all after a fitting one
    fit."""
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return low
