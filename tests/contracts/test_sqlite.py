"""The SQLite catalog, in a file and in memory, held to the contract."""

from __future__ import annotations

import tempfile
from pathlib import Path

from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.runtime.ports import Runtime
from tests.contracts.catalog.appends import AppendContract
from tests.contracts.catalog.extents import ExtentContract
from tests.contracts.catalog.manifests import ExportContract
from tests.contracts.catalog.producers import ProducerContract
from tests.contracts.catalog.state import StateContract
from tests.contracts.catalog.transactions import CatalogContract


class _Memory:
    def make(self) -> SqliteCatalog:
        return SqliteCatalog(None, Runtime())


class _File:
    def make(self) -> SqliteCatalog:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteCatalog(Path(self.folder.name), Runtime())

    def again(self) -> SqliteCatalog:
        return SqliteCatalog(Path(self.folder.name), Runtime())

    def teardown_method(self) -> None:
        super().teardown_method()  # type: ignore[misc]
        self.folder.cleanup()


class TestMemoryCatalog(_Memory, CatalogContract): ...


class TestMemoryAppends(_Memory, AppendContract): ...


class TestMemoryProducers(_Memory, ProducerContract): ...


class TestMemoryExtents(_Memory, ExtentContract): ...


class TestMemoryExports(_Memory, ExportContract): ...


class TestMemoryState(_Memory, StateContract): ...


class TestFileCatalog(_File, CatalogContract): ...


class TestFileAppends(_File, AppendContract): ...


class TestFileProducers(_File, ProducerContract): ...


class TestFileExtents(_File, ExtentContract): ...


class TestFileExports(_File, ExportContract): ...


class TestFileState(_File, StateContract): ...
