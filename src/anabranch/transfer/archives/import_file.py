"""Importing data files of an archive into a store: each becomes a blob, as durable as any other."""

from __future__ import annotations

import pyarrow as pa

from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.errors import CorruptArchive, CorruptStore
from anabranch.log.lease import HeldLease
from anabranch.log.parquet.builder import ParquetBuilder
from anabranch.log.parquet.reader import ParquetReader
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.transfer.archives.adopt import FileLocation
from anabranch.transfer.archives.data_files import DataFilePart
from anabranch.transfer.archives.format import ArchivedFile
from anabranch.transfer.archives.metadata import read_file


def import_data_file(
    source: Blobs, place: str, file: ArchivedFile, part: DataFilePart, blobs: Blobs, runtime: Runtime, hold: HeldLease
) -> FileLocation:
    """Verify a data file of the archive in `place` and store it durably as a blob, under the lease. An unencrypted
    store takes the file as it is; an encrypted one encrypts and writes it again. Memory: the file, twice if encrypted.
    Raises CorruptArchive, StoreUnavailable and its subclasses."""
    data = read_file(source, place, file)
    key = history_key(hold.begun_at, token(runtime.ids))
    try:
        reader = ParquetReader(file.name, data)
        if reader.rows != file.stop - file.start:
            raise CorruptArchive(place, file.name, f"holds {reader.rows:,} events, not {file.stop - file.start:,}")
        if runtime.sealer is None:
            blobs.put(key, [data])
            return FileLocation(key, data.size, file.checksum)
        whole, checksum = _sealed(reader, part, file.start, runtime.sealer.file_encryption(key), hold)
    except CorruptArchive:
        raise
    except CorruptStore as exc:
        raise CorruptArchive(place, file.name, f"can't be read ({exc})") from exc
    blobs.put(key, [whole])
    return FileLocation(key, whole.size, checksum)


def _sealed(
    reader: ParquetReader, part: DataFilePart, start: int, encryption: object, hold: HeldLease
) -> tuple[pa.Buffer, int]:
    builder = ParquetBuilder(part.schema.columns, encryption=encryption)
    builder.begin(part.stream, None, start, part.version, segment=part.segment)
    for batch, appended in reader.read(0, reader.rows, part.schema.columns):
        builder.write(batch, appended)
        hold.renew()
    builder.end()
    written = builder.finish()
    return written.data, written.checksum
