"""Finding the rows that repeat an earlier one with bounded memory, by sorting on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw
import numpy as np

from anabranch.catalog.queries import load
from anabranch.errors import DiskFull, StoreUnavailable
from anabranch.runtime.tasks import Tasks
from anabranch.transfer.jobs.row_digest import Words

_SQL: Final = load("anabranch.transfer.jobs")
_CACHE_KIB: Final = 16 * 1024


class RepeatSort:
    """Takes digests of rows by rank, then finds the ranks that repeat a lower one. Thread-safe once it is settled. Uses
    a temporary database file and 16 MiB of memory. Every method raises DiskFull, or StoreUnavailable, if the file can't
    be written."""

    def __init__(self, tasks: Tasks) -> None:
        self._lock = tasks.lock()
        with _translated():
            self._database = apsw.Connection("")
            self._database.execute(f"pragma cache_size = -{_CACHE_KIB}")
            self._database.execute("pragma synchronous = off")
            self._database.execute("pragma temp_store = file")
            for name in ("make_seen", "make_repeats"):
                self._database.execute(_SQL[name])

    def add(self, digests: tuple[Words, Words], rank: int) -> None:
        """Add rows with consecutive ranks from `rank` on."""
        low, high = (words.view(np.int64).tolist() for words in digests)
        with _translated():
            self._database.execute("begin")
            self._database.executemany(_SQL["add"], zip(low, high, range(rank, rank + len(low)), strict=True))
            self._database.execute("commit")

    def settle(self, first: int = 0) -> int:
        """End adding. Returns how many rows with ranks from `first` on repeat one of a lower rank."""
        with _translated():
            for name in ("settle", "forget"):
                self._database.execute(_SQL[name])
            row = self._database.execute(_SQL["count"], (first,)).fetchone()
        assert row is not None
        return int(row[0])

    def repeats(self, first: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The ranks `first <= rank < stop` that repeat a lower one."""
        with self._lock, _translated():
            found = [row[0] for row in self._database.execute(_SQL["between"], (first, stop))]
        return np.array(found, dtype=np.int64)

    def close(self) -> None:
        """Release the file."""
        self._database.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Translate the database's errors into the store's."""
    what = "the temporary file in which a job finds repeated events"
    try:
        yield
    except apsw.FullError as exc:
        raise DiskFull(
            f"no space is left for {what}; set SQLITE_TMPDIR to a folder with more space and resume the job"
        ) from exc
    except apsw.Error as exc:
        raise StoreUnavailable(f"{what} can't be used: {exc}") from exc
