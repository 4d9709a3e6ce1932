"""A broker's Flight server that loses the connection of an append."""

from __future__ import annotations

from typing import Any

from anabranch.server.flight.service import FlightService


class LossyService(FlightService):
    """Loses the connection of one append, when told to, in the place of its first answer or of its first batch."""

    lost = 0
    _after_append: bool | None = None

    def lose_append(self, *, after_append: bool) -> None:
        """Lose the connection of the next append, or of the one under way."""
        self._after_append = after_append

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        super().do_put(context, descriptor, _Reader(self, reader), _Writer(self, writer))

    def lose(self, *, after_append: bool) -> None:
        """Lose it now, if it is to be lost at this place."""
        if self._after_append is after_append:
            self._after_append, self.lost = None, self.lost + 1
            raise OSError("the connection was lost")


class _Reader:
    def __init__(self, service: LossyService, reader: Any) -> None:
        self._service, self._reader = service, reader

    def read_chunk(self) -> Any:
        chunk = self._reader.read_chunk()
        self._service.lose(after_append=False)
        return chunk


class _Writer:
    def __init__(self, service: LossyService, writer: Any) -> None:
        self._service, self._writer = service, writer
        self._answers = 0

    def write(self, message: Any) -> None:
        if self._answers:  # the first says that the call is open
            self._service.lose(after_append=True)
        self._answers += 1
        self._writer.write(message)
