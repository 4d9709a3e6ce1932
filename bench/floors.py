"""The best that this machine can do without Anabranch: the floors that figures are compared with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import numpy as np
import pyarrow as pa

_COMMITS_OF_A_LOG = 1_200  # one page each: SQLite restarts its log after a thousand


def write_files(folder: Path, contents: Sequence[bytes]) -> None:
    """Writes the bytes into files one after the other, each with an fsync."""
    folder.mkdir(parents=True)
    for number, content in enumerate(contents):
        file = os.open(folder / f"{number}.blob", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
        finally:
            os.close(file)


def bare_commits(path: Path, content: bytes) -> tuple[Callable[[], None], Callable[[], None]]:
    """Returns a function that inserts the bytes as one row and commits, in SQLite with WAL and synchronous=FULL; and
    one that closes the database.

    SQLite's first thousand commits extend its log's file, which syncs half as fast as overwriting it; here they are
    done already.
    """
    database = apsw.Connection(str(path))
    database.pragma("journal_mode", "wal")
    database.execute("create table events (id integer primary key, data blob not null)")

    def commit() -> None:
        database.execute("insert into events (data) values (?)", (content,))

    database.pragma("synchronous", 0)
    for _ in range(_COMMITS_OF_A_LOG):
        commit()
    database.pragma("synchronous", 2)
    return commit, database.close


def read_messages(places: Sequence[tuple[Path, Sequence[tuple[int, int]]]], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Returns the record batches at (offset, length) in memory-mapped files, without a copy."""
    batches = []
    for path, messages in places:
        with pa.memory_map(str(path)) as file:
            whole = file.read_buffer()
        batches += [pa.ipc.read_record_batch(whole.slice(offset, length), schema) for offset, length in messages]
    return batches


def touch(batch: pa.RecordBatch) -> int:
    """Reads every byte of the rows' payloads, and does nothing else with them."""
    column = batch.column("payload")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, count=len(column) + 1, offset=4 * column.offset)
    start, stop = int(ends[0]), int(ends[-1])
    words = np.frombuffer(data, np.uint8, count=stop - start, offset=start)[: (stop - start) // 8 * 8].view(np.uint64)
    return int(np.bitwise_xor.reduce(words)) if len(words) else 0
