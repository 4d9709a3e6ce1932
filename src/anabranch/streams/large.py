"""Large events: each is made durable in a blob of its own, by the thread that writes it, before it takes its place.

So no commit has to carry its bytes, and no other writer waits for them: to a commit it is one more row of the catalog, in
the order in which it was accepted. All else (numbers, fences, conditions, seals, lost answers) is as for any event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.core.codec import decode
from anabranch.log.appender import Appender
from anabranch.model.ids import WriterId
from anabranch.runtime.tasks import Lock
from anabranch.streams.chunk import Piece
from anabranch.streams.courier import Courier, as_error


class LargeEvents:
    """Those of one writer, one at a time: so it holds the bytes of one beside those that are pending, however many
    threads it has. `lock` is held from before the bytes are copied until the event is accepted and there is room again."""

    def __init__(self, courier: Courier, appender: Appender, writer: WriterId, lock: Lock) -> None:
        self._courier = courier
        self._appender = appender
        self._writer = writer
        self._lock = lock

    @contextmanager
    def before(self, piece: Piece) -> Iterator[bool]:
        """To be entered before a piece is accepted, and left behind that. True once a large event is durable; False where
        that failed: then its acknowledgement tells why, and it must not be accepted. Other pieces need nothing."""
        if not piece.large:
            yield True
            return
        with self._lock:
            yield self._send(piece)

    def _send(self, piece: Piece) -> bool:
        schema = self._courier.columns_of(piece.batch).schema
        try:
            piece.ahead = self._appender.ahead(piece.batch, schema, self._writer)
        except Exception as exc:  # no memory, no room, no store: the event is refused, and nothing of it is ever seen
            self._courier.abandon([piece], as_error(exc))
            return False
        # From here on the event is what was stored: its caller may change the bytes, or let go of them.
        piece.batch = decode(piece.ahead.message, schema.columns)
        return True
