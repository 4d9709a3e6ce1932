"""The SQLite catalog, in a file and in memory, held to the contract."""

from __future__ import annotations

import tempfile
from pathlib import Path

from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.runtime.ports import Runtime
from anabranch.testing.contracts import (
    AppendContract,
    CatalogContract,
    ExportContract,
    ExtentContract,
    ProducerContract,
    StateContract,
    run,
)


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


def test_a_suite_runs_without_a_test_framework() -> None:
    assert "test_the_token_reports_changes" in run(TestMemoryCatalog)
