"""Files of deployed queries, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.deployments.test_query_files",
        without={
            "test_a_content_that_was_changed_in_the_catalog_is_not_used": "damages the catalog",
        },
    )
)
