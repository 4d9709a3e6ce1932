"""Lineage, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.lineage.test_lineage",
        slow=("test_a_diff_equals_a_comparison_of_all_events",),
    )
)
