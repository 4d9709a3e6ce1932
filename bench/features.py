"""Features of a store over a bare catalog, for benchmarks and tests of catalogs."""

from __future__ import annotations

from anabranch.catalog.port import Catalog
from anabranch.runtime.ports import Runtime
from anabranch.streams.change import Changes
from anabranch.streams.companions.api import Companions
from anabranch.streams.manager import Streams
from anabranch.streams.scopes.api import Scopes


def changes_of(catalog: Catalog) -> Changes:
    """Returns a runner of changes that notifies nothing."""
    return Changes(catalog, Runtime(), lambda: None)


def streams_of(catalog: Catalog) -> Streams:
    """Returns the stream manager of a catalog without a store."""
    changes = changes_of(catalog)
    return Streams(changes, Companions(changes))


def scopes_of(catalog: Catalog) -> Scopes:
    """Returns the scopes of a catalog without a store."""
    changes = changes_of(catalog)
    return Scopes(changes, Companions(changes))
