"""Where rows and bytes are decoded, nothing is checked by `assert`, which `python -O` leaves out."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

DECODING = [
    "anabranch.catalog.digests",
    "anabranch.catalog.reading",
    "anabranch.catalog.rows",
    "anabranch.catalog.tables",
    "anabranch.catalog.postgres.reading",
    "anabranch.catalog.sqlite.reading",
    "anabranch.core.codec",
    "anabranch.core.invariants",
    "anabranch.core.spans",
    "anabranch.core.stream_slice",
    "anabranch.log.fetch",
    "anabranch.log.plan",
    "anabranch.streams.names.alias",
    "anabranch.streams.directory.former_names",
    "anabranch.streams.lineage.origins",
]


@pytest.mark.parametrize("module", DECODING)
def test_nothing_that_decodes_data_asserts(module: str) -> None:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
