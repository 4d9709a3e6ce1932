"""Deployed queries, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.deployments.test_deploying",
        without={
            "test_a_query_that_a_host_has_had_is_deleted_by_a_host": "its host uses the catalog itself",
            "test_a_rollback_keeps_what_state_it_can": "it looks at the row in the catalog",
        },
    )
)
