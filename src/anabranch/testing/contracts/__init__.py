"""Contract suites: what every adapter of a port promises, as tests that any adapter can run.

A suite is a class of `test_…` methods over `make()`, which the adapter's own test supplies. pytest collects the
subclass; without pytest, `anabranch.testing.contracts.run(suite)` runs it.
"""

from __future__ import annotations

from anabranch.testing.contracts.appends import AppendContract
from anabranch.testing.contracts.base import run
from anabranch.testing.contracts.blobs import BlobContract
from anabranch.testing.contracts.catalog import CatalogContract
from anabranch.testing.contracts.extents import ExtentContract
from anabranch.testing.contracts.manifests import ExportContract
from anabranch.testing.contracts.producers import ProducerContract
from anabranch.testing.contracts.state import StateContract

__all__ = [
    "AppendContract",
    "BlobContract",
    "CatalogContract",
    "ExportContract",
    "ExtentContract",
    "ProducerContract",
    "StateContract",
    "run",
]
