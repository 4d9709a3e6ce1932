"""Importing: the data files of an archive become blobs of the store, under a lease; then one transaction makes the stream.

Whatever is cut off before that has made nothing: its blobs are garbage, which the collector removes in its time.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.core.archive import ArchivedFile, ArchivedStream
from anabranch.errors import CorruptArchive, CorruptStore
from anabranch.log.lease import Hold
from anabranch.log.parquet import ParquetBuilder, ParquetReader
from anabranch.log.watch import Watch
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.streams.archive.adopt import Lying
from anabranch.streams.archive.files import Part
from anabranch.streams.archive.metadata import Found, part_of, read_file


class Bringing:
    """Brings data files into a store. Memory: one file. `progress` hears of bytes."""

    def __init__(self, blobs: Blobs, runtime: Runtime, source: Blobs, found: Found, progress: Watch) -> None:
        self._blobs = blobs
        self._runtime = runtime
        self._source = source
        self._found = found
        self._progress = progress
        self._done = 0

    def bring(self, stream: ArchivedStream, hold: Hold) -> Mapping[str, Lying]:
        """The stream's files, by name, as blobs that are durable. A store in the clear takes them as they are, an
        encrypted one writes them anew. Raises CorruptArchive, StoreUnavailable and its kind."""
        brought = {}
        for file in stream.files:
            data = read_file(self._source, self._found, file)
            brought[file.name] = self._put(file, data, part_of(stream, file), hold)
            hold.renew()
            self._done += file.size
            self._progress("importing", self._done, self._found.archive.size)
        return brought

    def pass_over(self, stream: ArchivedStream) -> None:
        """Count a stream that is there already."""
        self._done += sum(file.size for file in stream.files)

    def _put(self, file: ArchivedFile, data: pa.Buffer, part: Part, hold: Hold) -> Lying:
        key = history_key(hold.begun_at, token(self._runtime.ids))
        try:
            reader = ParquetReader(file.name, data)
            if reader.rows != file.stop - file.start:
                raise CorruptArchive(
                    self._found.place, file.name, f"holds {reader.rows:,} events, not as many as it is to"
                )
            sealer = self._runtime.sealer
            if sealer is None:
                self._blobs.put(key, [data])
                return Lying(key, data.size, file.checksum)
            builder = ParquetBuilder(part.schema.columns, encryption=sealer.file_encryption(key))
            builder.begin(part.stream, None, file.start, part.version, segment=part.segment)
            for batch, appended in reader.read(0, reader.rows, part.schema.columns):
                builder.write(batch, appended)
                hold.renew()
            builder.end()
        except CorruptArchive:
            raise
        except CorruptStore as exc:
            raise CorruptArchive(self._found.place, file.name, f"can't be read ({exc})") from exc
        written = builder.finish()
        self._blobs.put(key, [written.data])
        return Lying(key, written.data.size, written.checksum)
