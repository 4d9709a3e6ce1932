"""The tokens and rules that a broker caches in memory, and how it notices that they have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.catalog.state.access import (
    ACCESS_BINDING,
    ACCESS_ROLE,
    ACCESS_TOKEN,
    ACCESS_VERSION,
    ONLY,
    AccessVersion,
    BoundRole,
    TokenRow,
)
from anabranch.errors import StoreUnavailable
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import Principal
from anabranch.security.rights import BUILT_IN_ROLES, EVERYTHING, Rule

_PRINCIPALS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class AccessSnapshot:
    """Tokens by their SHA-256 and by their id, the operations of roles, and the roles of principals, at one moment."""

    version: int
    tokens: Mapping[str, TokenRow]
    by_id: Mapping[str, TokenRow]
    roles: Mapping[str, frozenset[str]]
    bindings: Mapping[str, tuple[BoundRole, ...]]
    _rules: dict[tuple[object, ...], tuple[Rule, ...]] = field(default_factory=dict)

    def rules(self, principal: Principal) -> tuple[Rule, ...]:
        """What the principal may do. A role that does not exist any more allows nothing."""
        key = (principal.name, principal.token, principal.groups, principal.roles)
        rules = self._rules.get(key)
        if rules is None:
            if len(self._rules) >= _PRINCIPALS_KEPT:
                self._rules.clear()
            rules = self._rules[key] = tuple(self._make_rules(principal))
        return rules

    def _make_rules(self, principal: Principal) -> list[Rule]:
        rules = [Rule(self._operations(role), EVERYTHING) for role in principal.roles]
        row = self.by_id.get(principal.token or "")
        if row is not None and row.on:
            allowed = frozenset(row.operations).union(*(self._operations(role) for role in row.roles))
            return rules + [Rule(allowed, on) for on in row.on]
        subjects = [principal.name, *(f"group:{name}" for name in principal.groups)]
        bound = [each for subject in subjects for each in self.bindings.get(subject, ())]
        return rules + [Rule(self._operations(each.role), each.on) for each in bound]

    def _operations(self, role: str) -> frozenset[str]:
        return self.roles.get(role, frozenset())


def load_access(txn: Reading) -> AccessSnapshot:
    """Read the tokens, roles and bindings."""
    rows = [row for _, row in txn.states(ACCESS_TOKEN)]
    return AccessSnapshot(
        _version(txn),
        {row.sha256: row for row in rows},
        {row.id: row for row in rows},
        {**{row.name: frozenset(row.operations) for _, row in txn.states(ACCESS_ROLE)}, **BUILT_IN_ROLES},
        {row.principal: row.roles for _, row in txn.states(ACCESS_BINDING)},
    )


def note_change(txn: Writing) -> None:
    """Increase the version of the access rules, in the transaction that changes them."""
    txn.put_state(ACCESS_VERSION, ONLY, AccessVersion(_version(txn) + 1))


def _version(txn: Reading) -> int:
    found = txn.state(ACCESS_VERSION, ONLY)
    return 0 if found is None else found.changes


class AccessCache:
    """The newest snapshot, which a task of its own renews after changes. `current` never waits for the catalog. The
    first snapshot is read by the constructor, which raises what the catalog raises."""

    def __init__(self, catalog: Catalog, runtime: Runtime) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._looked_at = runtime.clock.monotonic()
        with catalog.reading() as txn:
            self._snapshot = load_access(txn)
        self._refresh = Periodic(runtime, "access", limits.ACCESS_REFRESH_S, self.refresh)
        self._refresh.start()

    def current(self) -> AccessSnapshot:
        """The newest snapshot. Raises StoreUnavailable if the catalog could not be read for `limits.ACCESS_STALE_S`,
        because a token may have been revoked meanwhile."""
        age_s = self._runtime.clock.monotonic() - self._looked_at
        if age_s > limits.ACCESS_STALE_S:
            raise StoreUnavailable(
                f"the broker could not look up who may do what for {age_s:.0f} s: the catalog does not answer"
            )
        return self._snapshot

    def refresh(self) -> None:
        """Read a new snapshot if the version of the access rules has changed."""
        began = self._runtime.clock.monotonic()
        with self._catalog.reading() as txn:
            if _version(txn) != self._snapshot.version:
                self._snapshot = load_access(txn)
        self._looked_at = began

    def close(self) -> None:
        """End the task. A second call does nothing."""
        self._refresh.close()
