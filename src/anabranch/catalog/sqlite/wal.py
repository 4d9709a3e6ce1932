"""The write-ahead log of the database: how full it is, when it should be emptied, and room made for it beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from anabranch import limits

_PAGE_BYTES: Final = 4096 + 24  # a page in the log, behind its frame header
_ROOM_BYTES: Final = limits.MIB
_COMMITS_MIN: Final = 16  # who commits less often than this is not worth making room for
_ZEROS: Final = bytes(256 * limits.KIB)


class WriteAheadLog:
    """Watches the log through one connection, the one that commits.

    A commit that makes the log's file longer waits for its metadata too: 0.28 ms, where one that writes over what is
    there already takes 0.15. SQLite writes over its log once that has been emptied for the first time, since it never
    shortens the file. Until then, zeros are put behind the last commit: neither a reader nor recovery looks at them,
    because they are no frame of the log's present generation.
    """

    def __init__(self, database: apsw.Connection, path: str) -> None:
        self._database = database
        self._file = Path(path + "-wal")
        self._pages = 0
        self._commits = 0
        self._size = 0
        database.set_wal_hook(self._committed)

    def _committed(self, database: apsw.Connection, schema: str, pages: int) -> int:
        self._pages = pages
        self._commits += 1
        return apsw.SQLITE_OK

    @property
    def full(self) -> bool:
        """True if the log should be emptied into the database. Asks for it again and again if nobody does, but not
        with every commit: a reader may be in the way."""
        return self._pages > limits.WAL_PAGES_CHECKPOINT and self._commits % 64 == 0

    def make_room(self) -> None:
        """Lengthen the file where the commits to come would have to. To be called between transactions."""
        used = self._pages * _PAGE_BYTES
        whole = limits.WAL_PAGES_CHECKPOINT * _PAGE_BYTES
        if self._commits < _COMMITS_MIN or self._size >= min(used + _ROOM_BYTES // 4, whole):
            return
        try:
            # While this connection may write, nobody else does, not even a foreign tool.
            self._database.execute("begin immediate")
            try:
                self._lengthen(used, whole)
            finally:
                self._database.execute("rollback")
        except (OSError, apsw.Error):
            self._size = whole  # a full disk, say: the commits themselves will tell

    def _lengthen(self, used: int, whole: int) -> None:
        self._size = self._file.stat().st_size
        if self._size >= used + _ROOM_BYTES // 4:
            return
        # Twice as long each time, so that few commits wait for it.
        stop = min(max(2 * self._size, _ROOM_BYTES), whole)
        with self._file.open("r+b", buffering=0) as file:
            file.seek(self._size)
            while self._size < stop:
                self._size += file.write(_ZEROS[: stop - self._size])
