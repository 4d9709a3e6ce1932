"""How long a caller of a pipeline or a DataFrame waits. Needs no Spark: it is refused before anything else is done."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.spark.pipelines import admin
from anabranch.spark.pipelines.running import Pipeline
from anabranch.spark.source import frame


@pytest.mark.parametrize("seconds", [math.nan, -1, "5", True])
def test_what_is_no_time_to_wait_is_refused(tmp_path: Path, seconds: Any) -> None:
    nothing: Any = None
    with ab.connect(tmp_path / "river", create=True) as store:
        with pytest.raises(InvalidArgument, match="expected timeout_s"):
            admin.stop(store, "means", timeout_s=seconds)
        with pytest.raises(InvalidArgument, match="expected hold_s"):
            frame.read(nothing, store, "iot/raw", hold_s=seconds)
    with pytest.raises(InvalidArgument, match="expected timeout_s"):
        Pipeline.await_termination(nothing, seconds)
