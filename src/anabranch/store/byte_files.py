"""Opening byte streams as files, wherever the store is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, overload

from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.model.names import StreamName
from anabranch.reading.byte_reader import ByteReader
from anabranch.writing.byte_writer import ByteWriter


class ByteFiles(Displayed):
    """Streams that are used as files of bytes."""

    @overload
    def open(self, name: str | StreamName, mode: Literal["rb"] = "rb", *, follow: bool = False) -> ByteReader: ...
    @overload
    def open(self, name: str | StreamName, mode: Literal["ab", "xb"]) -> ByteWriter: ...
    def open(
        self, name: str | StreamName, mode: Literal["rb", "ab", "xb"] = "rb", *, follow: bool = False
    ) -> ByteReader | ByteWriter:
        """Open a byte stream as a file object. `rb` reads it, `ab` appends to it and creates it if it does not exist,
        `xb` creates a new one; see `ByteReader` and `ByteWriter`. With `follow` a reader waits at the tail for more. A raw
        stream that never held an event opens too: `rb` reads it as empty, `ab` makes it a byte stream. Whoever writes
        events to it then gets Conflict, and none of them is stored.

        Raises StreamNotFound, StreamExists, ScopeNotFound, StreamSealed, and InvalidArgument if the stream holds other
        events.
        """
        self._check_open()
        match mode:
            case "rb":
                return self._reader(name, follow=follow)
            case "ab" | "xb" if not follow:
                return self._writer(name, new=mode == "xb")
            case "ab" | "xb":
                raise InvalidArgument("follow=True requires mode 'rb'")
        raise InvalidArgument(
            f"expected mode 'rb' to read a byte stream, 'ab' to append or 'xb' to create one, got '{mode}'"
        )

    @abstractmethod
    def _check_open(self) -> None:
        """Raises Closed once the store is closed."""

    @abstractmethod
    def _reader(self, name: str | StreamName, *, follow: bool) -> ByteReader: ...

    @abstractmethod
    def _writer(self, name: str | StreamName, *, new: bool) -> ByteWriter: ...
