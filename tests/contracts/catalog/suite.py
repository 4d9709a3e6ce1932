"""What every suite for catalogs starts from: a fresh catalog for each test."""

from __future__ import annotations

from anabranch.catalog.port import Catalog


class CatalogSuite:
    """Tests of a catalog. A subclass implements `make`, and `again` where the same catalog can be opened twice."""

    def make(self) -> Catalog:
        """A new, empty catalog."""
        raise NotImplementedError

    def again(self) -> Catalog | None:
        """Another adapter on the catalog that `make` returned, as in another process; None if that is not possible."""
        return None

    def setup_method(self) -> None:
        """Open a catalog for one test."""
        self.catalog = self.make()

    def teardown_method(self) -> None:
        """Close it."""
        self.catalog.close()
