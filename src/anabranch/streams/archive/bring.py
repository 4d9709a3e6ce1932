"""Bringing data files of an archive into a store: each becomes a blob of it, as durable as any other."""

from __future__ import annotations

import pyarrow as pa

from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.core.archive import ArchivedFile
from anabranch.errors import CorruptArchive, CorruptStore
from anabranch.log.lease import Hold
from anabranch.log.parquet import ParquetBuilder, ParquetReader
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.streams.archive.adopt import Lying
from anabranch.streams.archive.files import Part
from anabranch.streams.archive.metadata import read_file


def bring_file(
    source: Blobs, place: str, file: ArchivedFile, part: Part, blobs: Blobs, runtime: Runtime, hold: Hold
) -> Lying:
    """Verify a data file of the archive in `place` and make it a blob, durably, under the lease. A store in the clear
    takes it as it is, an encrypted one writes it anew. Memory: the file, and there as much again. Raises CorruptArchive,
    StoreUnavailable and its kind."""
    data = read_file(source, place, file)
    key = history_key(hold.begun_at, token(runtime.ids))
    try:
        reader = ParquetReader(file.name, data)
        if reader.rows != file.stop - file.start:
            raise CorruptArchive(place, file.name, f"holds {reader.rows:,} events, not as many as it is to")
        if runtime.sealer is None:
            blobs.put(key, [data])
            return Lying(key, data.size, file.checksum)
        whole, checksum = _sealed(reader, part, file.start, runtime.sealer.file_encryption(key), hold)
    except CorruptArchive:
        raise
    except CorruptStore as exc:
        raise CorruptArchive(place, file.name, f"can't be read ({exc})") from exc
    blobs.put(key, [whole])
    return Lying(key, whole.size, checksum)


def _sealed(reader: ParquetReader, part: Part, start: int, encryption: object, hold: Hold) -> tuple[pa.Buffer, int]:
    builder = ParquetBuilder(part.schema.columns, encryption=encryption)
    builder.begin(part.stream, None, start, part.version, segment=part.segment)
    for batch, appended in reader.read(0, reader.rows, part.schema.columns):
        builder.write(batch, appended)
        hold.renew()
    builder.end()
    written = builder.finish()
    return written.data, written.checksum
