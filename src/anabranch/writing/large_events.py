"""Large events: each is made durable in a blob of its own, by the thread that writes it, before it is queued.

So no commit has to carry its bytes, and no other writer waits for them: to a commit it is one more row of the catalog,
in the order in which it was accepted. All else (numbers, fences, conditions, seals, lost answers) is as for any event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from anabranch.core.codec import decode
from anabranch.log.appender import Appender
from anabranch.model.ids import WriterId
from anabranch.runtime.tasks import Lock
from anabranch.writing.interruptions import as_append_error, may_be_interruption
from anabranch.writing.pending_batch import PendingBatch
from anabranch.writing.queue import WriterQueue
from anabranch.writing.router import Router


class LargeEvents:
    """The large events of one writer, one at a time. So besides the pending bytes, the writer holds the bytes of one
    large event, however many threads use it. `lock` is held from before the bytes are copied until the event is
    accepted and there is room again."""

    def __init__(self, queue: WriterQueue, router: Router, appender: Appender, writer: WriterId, lock: Lock) -> None:
        self._queue = queue
        self._router = router
        self._appender = appender
        self._writer = writer
        self._lock = lock

    @contextmanager
    def before(self, batch: PendingBatch) -> Iterator[bool]:
        """Enter before a batch is accepted, and leave afterwards. Yields True once a large event is durable; False if
        that failed: then its acknowledgement has the error, and it must not be accepted. Other batches need nothing."""
        if not batch.large:
            yield True
            return
        with self._lock:
            yield self._prewrite(batch)

    def _prewrite(self, batch: PendingBatch) -> bool:
        schema = self._router.schema_of(batch.events).schema
        try:
            batch.prewritten = self._appender.prewrite(batch.events, schema, self._writer)
        except Exception as exc:  # no memory, no room, no store: the event is refused and never becomes visible
            self._queue.abandon([batch], as_append_error(exc))
            if may_be_interruption(exc) and not isinstance(exc, pa.ArrowException):
                raise  # thrown in from outside
            return False
        # From here on the event is what was stored: its caller may change or release the bytes.
        batch.events = decode(batch.prewritten.message, schema.columns)
        return True
