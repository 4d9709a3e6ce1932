"""Aliases in the simulation: they lead to their streams under renames, lost answers and crashes."""

from __future__ import annotations

import pytest

from anabranch.catalog.port import Writing
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.streams.names import rename
from anabranch.streams.names.alias import forget_aliases
from tests.simulation.clients import ALIASES
from tests.simulation.simulation import Simulation

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_aliases_lead_to_their_streams_under_all_that_may_happen(seed: int) -> None:
    outcome = Simulation(seed, steps=5_000, mixes=ALIASES).run()
    assert outcome.sound, (outcome.violations, outcome.error)
    assert outcome.done["alias"] and outcome.done["rename"], "the life tries what it is about"


def test_a_rename_that_forgets_aliases_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rename.set_name

    def careless(txn: Writing, info: StreamInfo, new: StreamName, now: Micros) -> StreamInfo:
        forget_aliases(txn, info.id)
        return whole(txn, info, new, now)

    monkeypatch.setattr(rename, "set_name", careless)
    outcome = Simulation(1, steps=5_000, mixes=ALIASES).run()
    assert any("and leads to None" in each for each in outcome.violations), (outcome.violations, outcome.error)
