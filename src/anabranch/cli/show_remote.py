"""What `stream list` and `stream show` print, gathered through a broker, which gives no access to the catalog."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from anabranch.cli.output import iso_time
from anabranch.cli.show import details_from, summary
from anabranch.core.list_filter import ListFilter
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.load_policy import load_policy_to_json
from anabranch.model.policy import Fixed, rate_to_json
from anabranch.store import Store


def remote_summaries(
    store: Store, scope: str | None, *, internal: bool, selected: ListFilter | None = None
) -> list[dict[str, Any]]:
    """As `show.summaries`; for each stream the broker is asked twice. Raises ScopeNotFound."""
    if scope is not None:
        store.scopes.get(scope)
    selected = selected or ListFilter()
    aliases = defaultdict(list)
    for alias, stream in store.aliases.of().items():
        aliases[str(stream)].append(str(alias))
    found = [each for each in store.streams.list(scope, internal=internal) if selected(str(each.name), each.tags)]
    return [
        summary(store.streams.view(each.id))
        | {"ephemeral": store.ephemeral.is_ephemeral(each.id), "aliases": aliases[str(each.name)]}
        for each in found
    ]


def remote_details(store: Store, stream: str) -> dict[str, Any]:
    """As `show.details`. Raises StreamNotFound."""
    view = store.streams.view(stream)
    ident = view.info.id
    ranges = store.cuts.between(ident, HEAD, TAIL).ranges
    sizes = {part.segment: part.bytes for part in ranges}
    policies = store.policies
    policy, scaling, load = policies.retention(ident), policies.scaling(ident), policies.load(ident)
    holders = None
    if store.ephemeral.is_ephemeral(ident):
        holders = [
            {"process": each.process, "since": iso_time(each.since), "until": iso_time(each.until)}
            for each in store.ephemeral.holders(ident)
        ]
    return details_from(
        view,
        lambda segment: sizes.get(segment.id, 0),
        aliases=[str(alias) for alias in store.aliases.of(ident)],
        holders=holders,
        retention=None if policy is None else policy.to_json(),
        scaling=None if isinstance(scaling, Fixed) else rate_to_json(scaling),
        load=None if load is None else load_policy_to_json(load),
    )
