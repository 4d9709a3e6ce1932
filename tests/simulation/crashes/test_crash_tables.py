"""Every verb of the features of a store and of its jobs stands in one of the tables of crashes, with each way it can go."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from itertools import pairwise
from types import CodeType
from typing import Any

from anabranch.deployments.api import DeployedQueries
from anabranch.deployments.templates.api import Templates
from anabranch.modules.api import Modules
from anabranch.store.archives import Archives
from anabranch.store.scopes import StoreScopes
from anabranch.store.streams import StoreStreams
from anabranch.streams.algebra.cuts import Cuts
from anabranch.streams.companions.api import Companions
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.lineage.api import Lineage
from anabranch.streams.names.api import Aliases
from anabranch.streams.policies import Policies
from anabranch.transfer.jobs.manager import Jobs
from tests.simulation.crashes import (
    test_crash_algebra,
    test_crash_archive,
    test_crash_changes,
    test_crash_copy_where,
    test_crash_elsewhere,
    test_crash_jobs,
    test_crash_names,
    test_crash_replace,
)
from tests.simulation.runs import test_ephemeral

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
    test_crash_copy_where.copy,
    test_crash_replace.replace,
    test_crash_jobs.follow,
    test_crash_jobs.follow_within,
)

FEATURES: dict[str, type] = {
    "streams": StoreStreams,
    "scopes": StoreScopes,
    "aliases": Aliases,
    "cuts": Cuts,
    "policies": Policies,
    "lineage": Lineage,
    "archives": Archives,
    "ephemeral": Ephemeral,
    "companions": Companions,
    "modules": Modules,
    "templates": Templates,
    "queries": DeployedQueries,
}

# These read and change nothing, so a crash leaves what was there.
READING = {
    *("aliases.list", "aliases.of", "archives.digest", "cuts.after", "cuts.at", "cuts.between", "cuts.compare"),
    *("cuts.contains", "cuts.distance", "cuts.head", "cuts.tail", "ephemeral.holders", "ephemeral.is_ephemeral"),
    *("lineage.diff", "lineage.origins", "scopes.get", "scopes.list", "streams.exists", "streams.find", "streams.get"),
    *(
        "modules.code",
        "modules.get",
        "modules.list",
        "modules.versions",
        "queries.file",
        "queries.get",
        "queries.list",
        "queries.results",
        "queries.state",
        "queries.committed_state",  # as `queries.plan`
        "queries.plan",  # and `queries.validate`: what they ask is withdrawn, or forgotten in time
        "queries.validate",
        "queries.versions",
        "templates.get",
        "templates.list",
        "streams.list",
        "streams.view",
        "streams.misplaced",
        "archives.unconfirmed_attachments",
    ),
}
# Called within others: `collect` sweeps, a store that ends closes what it holds, and companions are made by writers and
# deleted with their stream (`test_crash_times.py`).
# Confirming is one transaction that can be repeated; `tests/store/log/recovery/test_hostile_backups.py` has its tests.
CONFIRMING = {"archives.confirm_attachment"}
WITHIN = {"companions.create", "companions.sweep", "ephemeral.close", "ephemeral.hand_over", "ephemeral.sweep"}

# What makes a verb go another way, by the argument that asks for it.
WAYS = {
    ("streams.append", "deduplicate"),
    ("streams.append", "to"),
    ("jobs.copy", "follow"),
    ("streams.copy", "independent"),
    ("streams.copy", "where"),
    ("scopes.copy", "to"),
    ("scopes.delete", "recursive"),
    ("streams.stitch", "deduplicate"),
    ("streams.stitch", "keep_sources"),
    ("streams.stitch", "to"),
}


def methods_of(kind: type) -> set[str]:
    """The public methods of a class."""
    return {
        name
        for each in kind.__mro__
        for name, value in vars(each).items()
        if inspect.isfunction(value) and name[0] != "_"
    }


def verbs() -> set[str]:
    """Every verb of every feature, as `feature.verb`."""
    return {f"{feature}.{name}" for feature, kind in FEATURES.items() for name in methods_of(kind)}


def codes(code: CodeType) -> list[CodeType]:
    """Of a function and those within it."""
    return [code, *(inner for each in code.co_consts if isinstance(each, CodeType) for inner in codes(each))]


def asked() -> tuple[set[str], set[tuple[str, str]]]:
    """The verbs that the tables call, each also with the named arguments that stand in the same function."""
    names: set[str] = set()
    ways: set[tuple[str, str]] = set()
    for verb in TABLES:
        for code in codes(verb.__code__):
            loads = [(each.opname, each.argval) for each in dis.get_instructions(code) if "CACHE" not in each.opname]
            here = {
                f"{first}.{second}"
                for (kind, first), (then, second) in pairwise(loads)
                if kind in ("LOAD_ATTR", "LOAD_METHOD")
                and then in ("LOAD_ATTR", "LOAD_METHOD")
                and first in {*FEATURES, "jobs"}
            }
            names |= here | {name for name in code.co_names if "." not in name}
            words = {
                word for each in code.co_consts if isinstance(each, tuple) for word in each if isinstance(word, str)
            }
            ways.update((name, word) for name in here for word in words)
    return names, ways


def test_every_verb_of_a_store_crashes_in_a_table() -> None:
    names, _ = asked()
    missing = verbs() - READING - WITHIN - CONFIRMING - names
    assert not missing, "these stand in no table of tests/simulation/crashes/test_crash_*.py"
    assert verbs() >= READING | WITHIN | CONFIRMING, "these are no verbs any more"


def test_every_way_of_a_verb_crashes_in_a_table() -> None:
    _, ways = asked()
    assert WAYS - ways == set(), "no table asks for these"


def test_what_only_reads_takes_no_request() -> None:
    reading = {name: getattr(FEATURES[name.partition(".")[0]], name.partition(".")[2]) for name in READING}
    assert [name for name, verb in reading.items() if "request" in inspect.signature(verb).parameters] == []


def test_every_verb_that_begins_a_job_crashes_in_a_table() -> None:
    """By the verb of a feature that asks for it; `resume` and `forget` are how the tables go on, and end."""
    names, ways = asked()
    called = {
        name.replace("archives.create_scope", "archive_scope").replace("archives.create", "archive") for name in names
    }
    called |= {"import_archive" for name in names if name == "archives.import_"}
    called |= {"copy_where" for way in ways if way == ("streams.copy", "where")}
    called |= {"copy_scope" for name in names if name == "scopes.copy"}
    called |= {name.partition(".")[2] for name in names if name.startswith("streams.")}
    reading = {"close", "get", "list"}
    assert methods_of(Jobs) - reading - {"resume", "forget", "confirm"} <= called
    assert methods_of(Jobs) >= reading | {"resume", "forget", "confirm"}
