"""Deployed queries of a store that a broker serves; see `anabranch.deployments.api`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch import limits
from anabranch.deployments.results import open_results
from anabranch.model.cut import HEAD
from anabranch.model.rate import Rate
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place
from anabranch.reading.reader import Reader
from anabranch.remote.verbs import RemoteNoun
from anabranch.wire.verbs import VERBS


class RemoteQueries(RemoteNoun):
    """Deployed queries by name."""

    def results(
        self,
        name: str,
        result: str | None = None,
        *,
        start: Place = HEAD,
        end: Place | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        by: TimeKind = "append",
        batch_rows: int = limits.READ_ROWS_MAX,
        rate: Rate | None = None,
    ) -> Reader:
        """See `DeployedQueries.results`."""
        store: Any = self._own
        opened: Reader = open_results(
            lambda query: self._caller.call(VERBS["queries.get"], {"name": query}),
            store.reader,
            self._caller.runtime.tasks,
            name,
            result,
            start=start,
            end=end,
            follow=follow,
            columns=columns,
            by=by,
            batch_rows=batch_rows,
            rate=rate,
        )
        return opened
