"""Reader groups over a connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from tests.remote.suites.serving import served_store, suite

FAULTS = "makes the catalog of this process fail; test_group_sessions loses connections instead"
INSIDE = "looks inside the embedded reader or group"

globals().update(
    suite(
        "tests.store.groups.test_checkpoints",
        without={
            "test_a_checkpoint_of_a_group_that_is_reset_to_other_streams_meanwhile_is_dropped": INSIDE,
            "test_a_checkpoint_is_a_cut_of_what_every_reader_was_given": INSIDE,
            "test_a_generated_cut_is_after_processed_events_and_calls_no_checkpoint_callback": INSIDE,
            "test_a_generated_cut_waits_for_a_checkpoint_unless_that_is_cancelled": INSIDE,
            "test_a_reader_that_leaves_is_not_waited_for": INSIDE,
        },
    )
)
globals().update(
    suite(
        "tests.store.groups.test_delivery",
        without={
            "test_at_most_once_hands_out_what_it_could_not_have_accepted_before": INSIDE,
            "test_at_most_once_a_checkpoint_within_a_batch_loses_none_of_its_events": INSIDE,
            "test_a_reader_goes_on_after_heartbeats_of_unknown_outcome": INSIDE,
            "test_a_reader_that_can_not_leave_is_closed_and_its_lease_expires": FAULTS,
            "test_output_of_unknown_outcome_is_written_once": FAULTS,
            "test_a_failed_commit_that_is_retried_after_a_rebalance_is_written_once": FAULTS,
            "test_a_commit_after_more_events_is_not_a_retry": FAULTS,
            "test_a_commit_whose_answer_was_lost_counts_once": FAULTS,
        },
    )
)
globals().update(suite("tests.store.groups.test_lifecycle"))
globals().update(
    suite(
        "tests.store.groups.test_resets",
        without={
            "test_a_reset_goes_to_the_last_complete_checkpoint_or_the_beginning": INSIDE,
            "test_a_reset_changes_streams_and_ends": INSIDE,
        },
    )
)
globals().update(
    suite(
        "tests.store.groups.test_sharing",
        without={
            "test_the_refresh_interval_is_the_groups_but_a_fraction_of_the_lease": INSIDE,
            "test_segments_with_uncommitted_events_are_not_released": INSIDE,
        },
    )
)


@pytest.fixture
def segments() -> int:
    return 4


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Store]:
    """A store with the streams s/a and s/b."""
    with served_store(tmp_path / "river") as remote:
        remote.scopes.create("s")
        for name in ("s/a", "s/b"):
            remote.streams.create(name)
        yield remote
