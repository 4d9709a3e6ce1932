"""When a run is said to lose too many events to lateness."""

from __future__ import annotations

import pytest

from anabranch import limits
from anabranch.spark.pipelines.lateness import late_warning


def told(read: int, late: int, *, state: str = "running", keeps_late: bool = True) -> str | None:
    return late_warning(
        {"target": "s/out", "state": state, "run_read": read, "run_late": late, "keeps_late": keeps_late}
    )


def test_a_share_up_to_the_limit_is_no_loss_to_speak_of() -> None:
    read = 100_000
    most = int(limits.LATE_SHARE_MAX * read)
    assert told(read, most) is None
    warning = told(read, most + 1)
    assert warning is not None
    for part in ("s/out", "1,001 of 100,000", "(1%)", "kept in s/out_late", "watermark = ", "--from head --replace"):
        assert part in warning


@pytest.mark.parametrize(("state", "warns"), [("running", False), ("ended", True), ("failed", True)])
def test_a_run_is_not_judged_by_its_first_events_unless_it_has_ended(state: str, warns: bool) -> None:
    assert (told(limits.LATE_SHARE_EVENTS - 1, 900, state=state) is not None) == warns
    assert told(0, 0, state=state) is None


def test_events_that_are_not_kept_are_said_to_be_lost() -> None:
    assert "at least 50 of 1,000" in (told(1_000, 50, keeps_late=False) or "")
    assert "kept nowhere" in (told(1_000, 50, keeps_late=False) or "")


def test_progress_of_an_earlier_version_says_nothing_of_its_run() -> None:
    assert late_warning({"target": "s/out", "state": "ended", "read": 10, "late": 9}) is None
