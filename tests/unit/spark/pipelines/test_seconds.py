"""Durations of runs of pipelines."""

from __future__ import annotations

import math
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.spark.pipelines import admin
from anabranch.spark.pipelines.screen import watch


@pytest.mark.parametrize("seconds", [math.nan, math.inf])
def test_a_time_without_an_end_is_no_time_to_run_or_to_wait(seconds: float) -> None:
    pipeline: Any = None
    with pytest.raises(InvalidArgument, match="seconds as a finite number"):
        watch(pipeline, seconds=seconds)
    with ab.connect("memory://") as store, pytest.raises(InvalidArgument, match="timeout_s as a finite number"):
        admin.stop(store, "means", timeout_s=seconds)
