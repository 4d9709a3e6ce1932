"""Functions of PromQL over windows, at the edges of what a double holds."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.query.promql.vectors import SampledSeries
from anabranch.query.promql.windows import WINDOW_FUNCTIONS, over_windows


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([1.5e308, 1.5e308, 1.2e308], 1.4e308),
        ([-1.5e308, -1.5e308], -1.5e308),
        ([1.0, np.inf], np.inf),
        ([np.inf, -np.inf], np.nan),
        ([1.0, 2.0], 1.5),
        ([7.0], 7.0),
    ],
)
def test_the_mean_of_numbers_is_one_where_their_sum_is_none(values: list[float], mean: float) -> None:
    series = SampledSeries({}, np.arange(len(values)), np.array(values))
    edges = np.array([0]), np.array([len(values)])
    with np.errstate(all="ignore"):
        found, present = over_windows([series], *edges, WINDOW_FUNCTIONS["avg_over_time"], np.zeros(1), lambda: None)
    assert present.all()
    assert found[0, 0] == pytest.approx(mean, rel=1e-12, nan_ok=True)
