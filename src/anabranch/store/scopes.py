"""The scopes of a store, which can also be copied to another store."""

from __future__ import annotations

from anabranch import limits
from anabranch.core.copy import CopyResult
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.store.streams import TargetStore
from anabranch.streams.change import Changes
from anabranch.streams.companions.api import Companions
from anabranch.streams.scopes.api import Scopes


class StoreScopes(Scopes):
    """`Scopes` whose `copy` can also go `to` another store."""

    def __init__(self, changes: Changes, companions: Companions, own: TargetStore) -> None:
        super().__init__(changes, companions)
        self._own = own

    def copy(
        self,
        source: str,
        target: str,
        *,
        to: TargetStore | None = None,
        internal: bool = False,
        ephemeral: bool = False,
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> list[CopyResult]:
        """As `Scopes.copy`, also into a scope of the store `to`. One job copies all streams, and each stream appears
        whole; `progress` is called with logical bytes. Calling again continues where it was interrupted, and copies
        what is new. A stream name or alias that is taken is refused before anything is moved; see `Jobs.copy_scope`."""
        if to is None:
            return super().copy(
                source, target, internal=internal, ephemeral=ephemeral, progress=progress, request=request
            )
        job = to.jobs.copy_scope(
            self._own,
            source,
            target,
            internal=internal,
            ephemeral=ephemeral,
            window=window,
            progress=progress,
            request=request,
        )
        copies: list[CopyResult] = job.wait()
        return copies
