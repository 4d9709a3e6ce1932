"""What is wanted of a query."""

from __future__ import annotations

import pytest

from anabranch import limits
from anabranch.catalog.state.query import QueryNeeds
from anabranch.deployments.wanted_state import NeedsChange
from anabranch.errors import InvalidArgument

GB = 1_000_000_000


def test_needs_change_one_by_one() -> None:
    needs = NeedsChange("billing", None, "1GB").merged_into(QueryNeeds())
    assert needs == QueryNeeds("billing", limits.QUERY_CPUS, GB)
    assert NeedsChange(cpus=2).merged_into(needs) == QueryNeeds("billing", 2, GB)
    for group, cpus, memory in (
        ("a b", None, None),
        (None, -0.1, None),
        (None, float("nan"), None),
        (None, float("inf"), None),
        (None, None, "much"),
        (None, None, -1),
    ):
        with pytest.raises(InvalidArgument):
            NeedsChange(group, cpus, memory)
