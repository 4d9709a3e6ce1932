"""The questions that a host has its drivers answer, such as `queries validate` and the reading of a query's state."""

from __future__ import annotations

from typing import Final

from anabranch.deployments.questions import open_questions, take
from anabranch.errors import AnabranchError
from anabranch.spark.queries.driver_pool import DriverPool
from anabranch.spark.queries.driver_process import DriverProcess
from anabranch.store import Store

__all__ = ["Questions"]

_TRIES_MAX: Final = 2  # a question that ends its drivers must not end them all


class Questions:
    """Gives the open questions of a store to a driver. `pending` is True while there are any: no driver that may
    answer them is ended then."""

    def __init__(self, store: Store, pool: DriverPool) -> None:
        self._store = store
        self._pool = pool
        self._asked: dict[str, list[DriverProcess]] = {}  # the drivers that were given each question
        self.pending = False

    def look(self) -> None:
        """Give new questions to a driver, and once more those whose driver has ended. If there is no driver, one is
        started, which then stays as a spare."""
        try:
            questions = open_questions(self._store.catalog, self._store.runtime.clock.now())
            for each in questions:
                if not each.taken:
                    take(self._store.catalog, each)
        except AnabranchError:  # noted where the host looks for queries
            return
        self.pending = bool(questions)
        self._asked = {each.id: self._asked.get(each.id, []) for each in questions}
        waiting = [(ident, given) for ident, given in self._asked.items() if self._is_to_be_asked(given)]
        ready = self._pool.for_question() if waiting else None
        if ready is not None:
            for ident, given in waiting:
                ready.send(answer=ident)
                given.append(ready)

    def _is_to_be_asked(self, given: list[DriverProcess]) -> bool:
        return not given or (len(given) < _TRIES_MAX and not self._pool.has(given[-1]))
