"""Operators of PromQL between vectors of which one has no series."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.query.promql.binary import combined
from anabranch.query.promql.syntax import BinaryNode, Matching, NumberNode
from anabranch.query.promql.vectors import SeriesVector

NONE = SeriesVector.empty(3)
ONE = SeriesVector([{"host": "a"}], np.ones((1, 3)), np.ones((1, 3), np.bool_))
OPERATORS = ("and", "or", "unless", "+", "==", ">")
KEPT = {(0, 1): ("or",), (1, 0): ("or", "unless"), (0, 0): ()}  # the operators that keep the series, by where it is


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("sides", list(KEPT))
def test_a_vector_without_series_is_an_operand_like_any_other(operator: str, sides: tuple[int, int]) -> None:
    left, right = ((NONE, ONE)[side] for side in sides)
    found = combined(BinaryNode(operator, NumberNode(0), NumberNode(0), Matching(), False), left, right)
    assert isinstance(found, SeriesVector)
    kept = operator in KEPT[sides]
    assert found.labels == (ONE.labels if kept else [])
    assert found.present.shape == (int(kept), 3)
