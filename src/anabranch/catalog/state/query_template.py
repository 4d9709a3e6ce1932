"""Templates of queries that users have saved: statements with parameters, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, versioned
from anabranch.model.ids import Micros

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class SavedTemplate:
    """The statements of a template, as of when it was saved last."""

    name: str
    text: str
    saved_at: Micros


QUERY_TEMPLATE: Final[StateKind[str, SavedTemplate]] = state_kind(
    "query_template",
    by="the template's name",
    key=TEXT_KEY,
    value=versioned(codec_of(SavedTemplate), FORMAT, "template of a query"),
    identity=lambda row: row.name,
    example=(
        "hot",
        SavedTemplate(
            "hot",
            "DECLARE PARAMETER source STREAM;\nCREATE STREAM iot.hot AS SELECT * FROM STREAM :source WHERE celsius > 30;",
            Micros(1_767_225_660_000_000),
        ),
    ),
)
