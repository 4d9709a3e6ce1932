"""The retries of the PostgreSQL catalog, up to `settings.catalog_lock_s`: while the server is unavailable, and while
others hold a lock."""

from __future__ import annotations

from typing import Final

from anabranch.runtime.log_events import CATALOG_CONTENDED, CATALOG_RETRIED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import Retries, RetryPolicy

_UNAVAILABLE: Final = RetryPolicy(pause_s_min=0.01, pause_s_max=1.0, event=CATALOG_RETRIED)
_CONTENDED: Final = RetryPolicy(pause_s_min=0.01, pause_s_max=1.0, event=CATALOG_CONTENDED)


def server_retries(runtime: Runtime) -> Retries:
    """Retries while the server restarts or fails over."""
    return _UNAVAILABLE.begin(runtime, until=_deadline(runtime))


def lock_retries(runtime: Runtime) -> Retries:
    """Retries after a transaction gave up a lock, which is not worth a warning."""
    return _CONTENDED.begin(runtime, until=_deadline(runtime))


def _deadline(runtime: Runtime) -> float:
    return runtime.clock.monotonic() + runtime.settings.catalog_lock_s
