"""Files of deployed queries, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.deployments.test_query_files",
        without={
            **dict.fromkeys(
                (
                    "test_files_are_a_part_of_a_version_and_kept_once",
                    "test_contents_go_with_the_last_version_that_has_them",
                    "test_contents_go_with_a_version_that_is_no_longer_kept",
                    "test_all_files_of_a_store_have_a_limit",
                ),
                "looks into the catalog",
            ),
            "test_a_content_that_was_changed_in_the_catalog_is_not_used": "damages the catalog",
        },
    )
)
