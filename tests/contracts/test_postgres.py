"""The PostgreSQL catalog, held to the contract."""

from __future__ import annotations

from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.runtime.ports import Runtime
from tests.contracts.catalog.appends import AppendContract
from tests.contracts.catalog.extents import ExtentContract
from tests.contracts.catalog.manifests import ExportContract
from tests.contracts.catalog.producers import ProducerContract
from tests.contracts.catalog.state import StateContract
from tests.contracts.catalog.transactions import CatalogContract
from tests.postgres_server import drop, fresh_url


class _Postgres:
    def make(self) -> PostgresCatalog:
        self.url = fresh_url()
        return PostgresCatalog(self.url, Runtime())

    def again(self) -> PostgresCatalog:
        return PostgresCatalog(self.url, Runtime())

    def teardown_method(self) -> None:
        super().teardown_method()  # type: ignore[misc]
        drop(self.url)


class TestCatalog(_Postgres, CatalogContract): ...


class TestAppends(_Postgres, AppendContract): ...


class TestProducers(_Postgres, ProducerContract): ...


class TestExtents(_Postgres, ExtentContract): ...


class TestExports(_Postgres, ExportContract): ...


class TestState(_Postgres, StateContract): ...
