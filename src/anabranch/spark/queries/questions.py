"""The questions that a host has its drivers answer, such as `queries validate` and the reading of a query's state."""

from __future__ import annotations

from anabranch.deployments.questions import open_questions, take
from anabranch.errors import AnabranchError
from anabranch.spark.queries.driver_pool import DriverPool
from anabranch.store import Store

__all__ = ["Questions"]


class Questions:
    """Gives the open questions of a store to a driver. `pending`: there are some, and no driver that may answer ends."""

    def __init__(self, store: Store, pool: DriverPool) -> None:
        self._store = store
        self._pool = pool
        self._asked: set[str] = set()  # that a driver was given
        self.pending = False

    def look(self) -> None:
        """Give new questions to a driver. If there is no driver, one is started, which then stays as a spare."""
        try:
            questions = open_questions(self._store.catalog, self._store.runtime.clock.now())
            for each in questions:
                if not each.taken:
                    take(self._store.catalog, each)
        except AnabranchError:  # noted where the host looks for queries
            return
        found = {each.id for each in questions}
        self.pending = bool(found)
        self._asked &= found
        waiting = found - self._asked
        ready = self._pool.for_question() if waiting else None
        if ready is not None:
            for ident in waiting:
                ready.send(answer=ident)
            self._asked |= waiting
