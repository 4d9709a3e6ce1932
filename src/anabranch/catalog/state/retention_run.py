"""When all retention policies were last applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import StateKind, only_key, state_kind
from anabranch.model.ids import Micros

ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """`at`: when the last run began."""

    at: Micros


RETENTION_RUN: Final[StateKind[str, RetentionRun]] = state_kind(
    "retention_run",
    by="`all`",
    key=only_key(ALL),
    value=RetentionRun,
    example=(ALL, RetentionRun(Micros(1_767_225_600_000_000))),
)
