"""The verbs that can take part in one transaction with others: those that only read and change the catalog. The others move
events, wait, or work elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.errors import InvalidArgument
from anabranch.wire.verbs.verb import StoreVerb

_ELSEWHERE: Final = frozenset({"to"})

TOGETHER: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            *(
                f"streams.{name}"
                for name in ("add_check", "add_columns", "create", "delete", "evolve", "exists", "fence")
            ),
            *(f"streams.{name}" for name in ("find", "get", "list", "move", "remove_check", "rename", "scale", "seal")),
            *("streams.tag", "streams.view"),
            *("scopes.create", "scopes.delete", "scopes.get", "scopes.list", "scopes.rename"),
            *("aliases.add", "aliases.list", "aliases.of", "aliases.remove"),
            *(f"cuts.{name}" for name in ("after", "between", "compare", "contains", "distance", "head", "tail")),
            *("lineage.diff", "lineage.origins"),
            *("policies.load", "policies.retention", "policies.scaling"),
            *("ephemeral.holders", "ephemeral.is_ephemeral", "ephemeral.keep"),
            *("producers.drop", "producers.list", "subscribers.list"),
            *("watermarks.end", "watermarks.get", "watermarks.idle"),
            *("groups.list", "group.checkpoints", "group.cut", "group.delete", "group.open", "group.reader_offline"),
            *("group.readers", "group.reset", "group.rewind", "group.streams"),
            *(f"revisioned.{name}" for name in ("append", "last", "latest", "oldest", "open", "read", "truncate")),
            *("transactions.commit_together", "transactions.list"),
            *(f"modules.{name}" for name in ("add", "code", "get", "list", "remove", "versions")),
            *(f"templates.{name}" for name in ("get", "list", "remove", "save")),
        ),
        frozenset[str](),
    ),
    "scopes.copy": _ELSEWHERE,
    "streams.append": _ELSEWHERE | {"deduplicate"},
    "streams.copy": _ELSEWHERE | {"where", "keys", "independent", "follow"},
    "streams.stitch": _ELSEWHERE | {"deduplicate", "prefer"},
    "streams.truncate": frozenset({"by"}),
}
"""By name, each with the arguments that it can't be given then."""


def require_together(verb: StoreVerb, arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArgument for a verb that can't take part in a transaction with others, as these arguments ask it."""
    without = TOGETHER.get(verb.name)
    if without is None:
        raise InvalidArgument(
            f"{verb.name} can't be part of a transaction, because it does more than change the catalog: call it alone, or in a run without one"
        )
    if given := next((name for name in sorted(without) if arguments.get(name) not in (None, False)), None):
        raise InvalidArgument(
            f"{verb.name} can't be part of a transaction with the argument '{given}', because that moves events: call it alone, or in a run without one"
        )
