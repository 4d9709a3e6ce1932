"""Load policies: what a broker does with appends to a stream above a rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

from anabranch.errors import InvalidArgument
from anabranch.model.rate import Rate


@dataclass(frozen=True, slots=True)
class RejectAbove:
    """Appends above the rate are refused with RateLimited, which says after how long to try again."""

    rate: Rate
    above: ClassVar[str] = "reject"

    def __post_init__(self) -> None:
        _check_rate(self.rate)


@dataclass(frozen=True, slots=True)
class SampleAbove:
    """Above the rate, only a sample of the events is kept. The column `weight`, of type double, is the number of events
    that a kept event represents; null if none was dropped."""

    rate: Rate
    weight: str = "weight"
    above: ClassVar[str] = "sample"

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not isinstance(self.weight, str):
            raise InvalidArgument(f"expected the name of the column for the weights, got {self.weight!r:.100}")


def _check_rate(rate: object) -> None:
    """Raises InvalidArgument."""
    if not isinstance(rate, Rate):
        raise InvalidArgument(f"expected a Rate, such as Rate(events_per_s=1000), got {rate!r:.100}")


LoadPolicy: TypeAlias = RejectAbove | SampleAbove


def load_policy_of(policy: Any) -> LoadPolicy | None:
    """The load policy itself. Raises InvalidArgument for anything else."""
    if policy is None or isinstance(policy, LoadPolicy):
        return policy
    raise InvalidArgument(f"expected a load policy (RejectAbove, SampleAbove) or None, got {policy!r:.100}")


def load_policy_to_json(policy: LoadPolicy) -> dict[str, object]:
    """The form stored in the catalog."""
    more = {"weight": policy.weight} if isinstance(policy, SampleAbove) else {}
    return {"above": policy.above, "rate": asdict(policy.rate), **more}


def load_policy_from_json(value: Mapping[str, Any]) -> LoadPolicy:
    """The inverse of `load_policy_to_json`."""
    rate = Rate(**value["rate"])
    return RejectAbove(rate) if value["above"] == RejectAbove.above else SampleAbove(rate, value["weight"])
