"""Settings of another type are refused, not found out in the middle of a commit."""

from __future__ import annotations

import math
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.runtime.settings import Settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"inline_bytes_max": "x"}, "setting inline_bytes_max as a number, got 'x'"),
        ({"commit_bytes_max": None}, "setting commit_bytes_max as a number, got None"),
        ({"history_bytes_per_s_max": "1"}, "setting history_bytes_per_s_max as a number, got '1'"),
        ({"catalog_lock_s": math.nan}, "setting catalog_lock_s as a number, got nan"),
        ({"maintenance_s": "60"}, "setting maintenance_s as a number, got '60'"),
        ({"time_zone": 5}, "time zone as text, got 5"),
    ],
)
def test_a_setting_of_another_type_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Settings(**wrong)
    assert Settings(maintenance_s=None, history_bytes_per_s_max=None, tail_poll_us_max=1).maintenance_s is None


@pytest.mark.parametrize("wrong", [5, {"inline_bytes_max": 1}])
def test_settings_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="expected the settings as Settings"):
        ab.connect("memory://", settings=wrong)
