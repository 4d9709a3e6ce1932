"""Results as tables, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.reading.conftest",
        "tests.store.reading.test_arrow_results",
        without={
            "test_what_a_reader_yields_replaces_a_time_range_as_it_is": "replaces by a table, which needs the store's files",
        },
        slow=(
            "test_a_missing_library_is_named",
            "test_a_named_level_of_an_index_is_a_column_where_the_stream_has_it",
            "test_a_range_becomes_a_table_in_another_process",
            "test_a_stream_takes_its_columns_from_a_frame_a_table_or_a_reader",
            "test_closing_the_store_waits_for_a_pull_on_another_thread",
            "test_metadata_that_only_looks_like_pandas_is_ignored",
        ),
    )
)
