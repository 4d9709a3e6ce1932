"""Every verb of `store.streams` and of its jobs stands in one of the tables of crashes, with each way it can go."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

from anabranch.store.streams import StoreStreams
from anabranch.streams.jobs.manager import Jobs
from tests.sim import (
    test_crash_algebra,
    test_crash_archive,
    test_crash_changes,
    test_crash_elsewhere,
    test_crash_jobs,
    test_crash_names,
    test_ephemeral,
)

TABLES: tuple[Callable[..., Any], ...] = (
    *test_crash_algebra.VERBS,
    *test_crash_names.AT_ONCE,
    *test_crash_names.IN_PAGES,
    *test_crash_changes.AT_ONCE,
    *test_crash_changes.JOBS,
    *test_crash_archive.VERBS,
    *test_crash_elsewhere.VERBS,
    *test_ephemeral.VERBS,
    test_crash_jobs.copy,
    test_crash_jobs.follow,
    test_crash_jobs.follow_within,
)

# These tell something and change nothing, so a crash leaves what was there.
TELLING = {
    "aliases",
    "between",
    "compare",
    "contains",
    "cut_after",
    "cut_at",
    "diff",
    "digest",
    "distance",
    "exists",
    "find",
    "get",
    "head",
    "holders",
    "is_ephemeral",
    "lineage",
    "list",
    "list_aliases",
    "scope",
    "scopes",
    "tail",
    "view",
}
# Asked for within others: `collect` sweeps, a store that ends closes what it holds, and what is kept for a stream is made
# by its writers and goes with it (`test_crash_times.py`).
WITHIN = {"close", "make_companion", "sweep", "sweep_orphans"}

# What makes a verb go another way, by the argument that asks for it.
WAYS = {
    ("append", "deduplicate"),
    ("append", "to"),
    ("copy", "follow"),
    ("copy", "independent"),
    ("copy_scope", "to"),
    ("delete_scope", "recursive"),
    ("stitch", "deduplicate"),
    ("stitch", "keep_sources"),
    ("stitch", "to"),
}


def verbs_of(kind: type) -> set[str]:
    """The public methods of a class."""
    return {
        name
        for each in kind.__mro__
        for name, value in vars(each).items()
        if inspect.isfunction(value) and name[0] != "_"
    }


def codes(code: CodeType) -> list[CodeType]:
    """Of a function and those within it."""
    return [code, *(inner for each in code.co_consts if isinstance(each, CodeType) for inner in codes(each))]


def asked() -> tuple[set[str], set[tuple[str, str]]]:
    """The names that the tables use, and each with the named arguments that stand beside it."""
    names: set[str] = set()
    ways: set[tuple[str, str]] = set()
    for verb in TABLES:
        for code in codes(verb.__code__):
            names.update(code.co_names)
            words = {
                word for each in code.co_consts if isinstance(each, tuple) for word in each if isinstance(word, str)
            }
            ways.update((name, word) for name in code.co_names for word in words)
    return names, ways


def test_every_verb_of_streams_crashes_in_a_table() -> None:
    names, _ = asked()
    missing = verbs_of(StoreStreams) - TELLING - WITHIN - names
    assert not missing, "these stand in no table of tests/sim/test_crash_*.py"
    assert verbs_of(StoreStreams) >= TELLING | WITHIN, "these are no verbs of streams any more"


def test_every_way_of_a_verb_crashes_in_a_table() -> None:
    _, ways = asked()
    assert WAYS - ways == set(), "no table asks for these"


def test_what_only_tells_takes_no_request() -> None:
    verbs = {name: getattr(StoreStreams, name) for name in TELLING}
    assert [name for name, verb in verbs.items() if "request" in inspect.signature(verb).parameters] == []


def test_every_verb_that_begins_a_job_crashes_in_a_table() -> None:
    """By the verb of streams that asks for it; `resume` and `forget` are how the tables go on, and end."""
    names, _ = asked()
    telling = {"close", "get", "list"}
    assert verbs_of(Jobs) - telling - {"resume", "forget"} <= names
    assert verbs_of(Jobs) >= telling | {"resume", "forget"}
