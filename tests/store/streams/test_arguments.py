"""Arguments of another type are refused with one clear message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.store import Store
from anabranch.transfer.jobs.follow_until import Until

CALLS: Mapping[str, Callable[[Any], object]] = {
    "streams.list(3)": lambda store: list(store.streams.list(3)),
    "streams.list(tag=3)": lambda store: list(store.streams.list(tag=3)),
    "aliases.list(3)": lambda store: list(store.aliases.list(3)),
    "groups.list(3)": lambda store: store.groups.list(3),
    "scopes.get(3)": lambda store: store.scopes.get(3),
    "scopes.list(tag=3)": lambda store: store.scopes.list(tag=3),
    "scopes.delete(3)": lambda store: store.scopes.delete(3),
    "scale(True)": lambda store: store.streams.scale("s/a", True),
    "scale('4')": lambda store: store.streams.scale("s/a", "4"),
    "scale(into=True)": lambda store: store.streams.scale("s/a", split="0.0", into=True),
    "scale(into=2**40)": lambda store: store.streams.scale("s/a", split="0.0", into=1 << 40),
    "scale(merge=3)": lambda store: store.streams.scale("s/a", merge=3),
    "scale(merge='0.0')": lambda store: store.streams.scale("s/a", merge="0.0"),
    "scale(replace=3)": lambda store: store.streams.scale("s/a", replace=3),
    "scale(replace={'0.0': 3})": lambda store: store.streams.scale("s/a", replace={"0.0": 3}),
    "copy(follow=3)": lambda store: store.streams.copy("s/a", "s/b", follow=3),
    "copy(window='x')": lambda store: store.streams.copy("s/a", "s/b", independent=True, window="x"),
    "copy(where=3)": lambda store: store.streams.copy("s/a", "s/b", where=3),
    "append(deduplicate=3)": lambda store: store.streams.append("s/a", "s/a", deduplicate=3),
    "append(window='x')": lambda store: store.streams.append("s/a", "s/a", deduplicate=["key"], window="x"),
    "stitch(3)": lambda store: store.streams.stitch(3, into="s/b"),
    "stitch(prefer=3)": lambda store: store.streams.stitch(["s/a"], into="s/b", deduplicate=["key"], prefer=3),
    "stitch(prefer=[[0]])": lambda store: store.streams.stitch(["s/a"], into="s/b", deduplicate=["key"], prefer=[[0]]),
    "stitch(prefer=[True])": lambda store: store.streams.stitch(
        ["s/a", "s/a"], into="s/b", deduplicate=["key"], prefer=[True]
    ),
    "stitch(window='x')": lambda store: store.streams.stitch(["s/a"], into="s/b", deduplicate=["key"], window="x"),
    "reader(columns=3)": lambda store: store.reader("s/a", columns=3),
    "reader(columns=[3])": lambda store: store.reader("s/a", columns=[3]),
    "reader(columns=[[]])": lambda store: store.reader("s/a", columns=[[]]),
    "reader(batch_rows='x')": lambda store: store.reader("s/a", batch_rows="x"),
    "reader(between=3)": lambda store: store.reader("s/a", between=3),
    "groups.open(streams=3)": lambda store: store.groups.open("s/g", streams=3),
    "group.reset(streams=3)": lambda store: store.groups.open("s/g", streams="s/a").reset(streams=3),
    "commit_together(3)": lambda store: store.transactions.commit_together(3, "s/a", request="r"),
    "commit_together('x')": lambda store: store.transactions.commit_together("x", "s/a", request="r"),
    "watermarks.window(3)": lambda store: store.watermarks.window("s/a", 3),
    "history.read(columns=3)": lambda store: store.history("s/a").read(columns=3),
    "RetainConsumed(3)": lambda store: ab.RetainConsumed(3),  # type: ignore[arg-type]
    "jobs.stitch(3)": lambda store: store.jobs.stitch(store, 3, "s/b"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_of_another_type_is_refused(store: Store, call: str) -> None:
    with pytest.raises(InvalidArgument, match=r"expected|takes|needs"):
        CALLS[call](store)
    assert [str(each.name) for each in store.streams.list()] == ["s/a"]
    assert len(store.streams.view("s/a").current) == 2
    assert not store.jobs.list()


@pytest.mark.parametrize("condition", [{"idle_s": "x"}, {"for_s": float("nan")}, {"events": 1.5}, {"events": True}])
def test_a_condition_that_ends_a_copy_is_checked(condition: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="expected"):
        Until(**condition)
