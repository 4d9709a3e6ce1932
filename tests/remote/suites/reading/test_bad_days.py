"""Reading what is truncated, deleted or damaged, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.reading.conftest",
        "tests.store.reading.test_bad_days",
        without={
            "test_reading_continues_after_ctrl_c_without_loss_or_duplicates": "interrupts the embedded reader",
            "test_reading_continues_after_a_catalog_error_without_loss": "makes the catalog of this process fail",
            "test_a_reader_below_a_truncation_gets_an_error_with_the_new_head": "a client reads ahead, and hands out what it received before the truncation",
        },
        slow=("test_a_flipped_bit_is_reported_and_no_row_of_its_batch_is_handed_out",),
    )
)
