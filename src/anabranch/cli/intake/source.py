"""Reads bytes and lines from files and pipes."""

from __future__ import annotations

import gzip
import io
import os
import select
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from anabranch import limits
from anabranch.core.closeable import Closeable
from anabranch.errors import InvalidArgument

BLOCK_BYTES: Final = 4 * limits.MIB
LINE_BYTES_MAX: Final = 2 * limits.LARGE_EVENT_BYTES_MAX  # an event's text may be longer than the event
_READ_BYTES: Final = 256 * limits.KIB


class IntakeSource(Closeable):
    """A file, or stdin for `-`. A file whose name ends in .gz is decompressed. Close it, or use it as a context
    manager."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.name = "stdin" if path is None else str(path)
        try:
            self._raw: IO[bytes] = sys.stdin.buffer if path is None else path.open("rb")
        except OSError as exc:
            raise InvalidArgument(f"{self.name} can't be read: {exc.strerror}") from exc
        self._packed = path is not None and path.suffix == ".gz"
        self._file: Any = gzip.GzipFile(fileobj=self._raw) if self._packed else self._raw
        status = _status(self._raw)
        self.waits = not self._packed and status is not None and not stat.S_ISREG(status.st_mode)
        self.size = status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise InvalidArgument(f"{self.name} is a folder")

    @property
    def format_name(self) -> str:
        """The file's name, whose ending gives the format."""
        return "" if self.path is None else self.path.name.lower().removesuffix(".gz")

    @property
    def done(self) -> int:
        """The bytes read so far, of `size`."""
        return self._raw.tell() if self.size is not None else 0

    def read(self) -> bytes:
        """Returns the available bytes, at least one, waiting if there is none; empty at the end."""
        try:
            data: bytes = self._file.read1(_READ_BYTES)
        except (OSError, EOFError, zlib.error) as exc:
            raise InvalidArgument(f"{self.name} can't be read: {exc}") from exc
        return data

    def idle(self) -> bool:
        """True if a read would wait because the pipe has no data."""
        return self.waits and not select.select([self._raw.fileno()], [], [], 0)[0]

    def seekable(self) -> IO[bytes]:
        """Returns the whole input as a seekable file: a pipe is first copied to an unnamed file."""
        if self.size is not None and not self._packed:
            return self._raw
        whole: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as its reader
        while data := self.read():
            whole.write(data)
            if self._packed and whole.tell() > limits.UNPACKED_BYTES_MAX:
                raise InvalidArgument(f"{self.name} unpacks to more than {limits.UNPACKED_BYTES_MAX:,} bytes")
        whole.seek(0)
        return whole

    def close(self) -> None:
        """Close the file; stdin stays open."""
        if self.path is not None:
            self._file.close()
            self._raw.close()


def _status(file: IO[bytes]) -> os.stat_result | None:
    try:
        return os.fstat(file.fileno())
    except (io.UnsupportedOperation, OSError, ValueError):
        return None


@dataclass(slots=True)
class Lines:
    """Whole lines, `count` of them, beginning with line `first` of the file (from 1). The last may lack its line
    end."""

    data: bytes
    first: int
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = self.data.count(b"\n") + (not self.data.endswith(b"\n"))


class LineBlocks:
    """A source as blocks of whole lines, about `BLOCK_BYTES` each, or smaller if the source pauses.

    With `quoted`, line ends between double quotes do not end a line (CSV). A byte order mark is skipped.
    """

    def __init__(self, source: IntakeSource, *, quoted: bool = False) -> None:
        self._source = source
        self._quoted = quoted
        self._line = 1
        self._rest = b""
        self._peeked: list[Lines] = []
        self._blocks = self._read()

    def peek(self) -> Lines | None:
        """Returns the next block without consuming it; None at the end."""
        if not self._peeked:
            block = next(self._blocks, None)
            if block is None:
                return None
            self._peeked.append(block)
        return self._peeked[0]

    def __iter__(self) -> Iterator[Lines]:
        while (block := self.peek()) is not None:
            self._peeked.pop()
            yield block

    def _read(self) -> Iterator[Lines]:
        begun = False
        while True:
            parts, fresh, ended, ends = [self._rest], 0, False, False
            held, open_ = len(self._rest), self._opens(self._rest)
            # A line that spans many blocks is joined once, when it ends, not with each block.
            while (fresh < BLOCK_BYTES or not ends) and held <= LINE_BYTES_MAX and not (ends and self._source.idle()):
                data = self._source.read()
                if not data:
                    ended = True
                    break
                parts.append(data)
                fresh, held = fresh + len(data), held + len(data)
                ends = ends or self._last_end(data, open_) > 0
                open_ ^= self._opens(data)
            whole = b"".join(parts)
            if not begun and whole:
                whole, begun = whole.removeprefix(b"\xef\xbb\xbf"), True
            cut = len(whole) if ended else self._last_end(whole)
            self._rest = whole[cut:]
            if len(self._rest) > LINE_BYTES_MAX:
                raise BadInput(f"line {self._line}", f"it is longer than {LINE_BYTES_MAX:,} bytes")
            if cut:
                block = Lines(whole[:cut], self._line)
                self._line += block.count
                yield block
            if ended:
                return

    def _last_end(self, data: bytes, open_: bool = False) -> int:
        """Returns the position after the last line end that ends a line. `open_` says that the data begins within
        quotes."""
        end = data.rfind(b"\n") + 1
        open_ ^= self._opens(data, 0, end)
        while end and open_:
            before = data.rfind(b"\n", 0, end - 1) + 1
            open_ ^= self._opens(data, before, end)
            end = before
        return end

    def _opens(self, data: bytes, start: int = 0, stop: int | None = None) -> bool:
        """Whether this part of the data opens quotes that it does not close, or closes some that were open."""
        return self._quoted and data.count(b'"', start, stop) % 2 == 1


class BadInput(Exception):
    """The input is bad at `place`, for the reason `why`. All rows before it have been yielded."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place
        self.why = why
