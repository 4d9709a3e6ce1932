"""Operations of the algebra in pairs, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.algebra.test_algebra_pairings",
        slow=(
            "test_a_run_of_copies_joins_and_renames",
            "test_the_cost_of_an_operation_does_not_depend_on_the_events",
        ),
    )
)
