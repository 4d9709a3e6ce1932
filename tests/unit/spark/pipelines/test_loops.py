"""Loops between pipelines, held to a search that walks every way."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.pipelines.loops import Flow, find_loop

STREAMS = st.sampled_from("abcdef")
FLOWS = st.lists(st.builds(lambda a, b, p: Flow(a, b, b, p), STREAMS, STREAMS, st.sampled_from("xy")), max_size=10)


def ways(flows: Sequence[Flow], way: tuple[Flow, ...]) -> list[tuple[Flow, ...]]:
    """Every way from the end of this one back to its beginning that uses no flow twice."""
    found = [way] if way[-1].target == way[0].source else []
    for flow in flows:
        if flow.source == way[-1].target and flow not in way:
            found += ways(flows, (*way, flow))
    return found


@given(FLOWS, st.data())
def test_a_loop_is_found_if_there_is_one_and_it_is_the_shortest(flows: list[Flow], data: st.DataObject) -> None:
    if not flows:
        return
    first = data.draw(st.sampled_from(flows))
    found, known = find_loop(flows, first), ways(flows, (first,))
    assert (found is None) == (not known)
    if found is not None:
        assert found in known
        assert len(found) == min(map(len, known))
