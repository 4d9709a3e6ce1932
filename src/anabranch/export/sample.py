"""One value of a metric."""

from __future__ import annotations

from typing import NamedTuple


class MetricSample(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: tuple[tuple[str, str], ...]
    value: float
