"""The callers of the matrices of access: every role, on everything, on the scope `iot` and on another one; and callers
who should not get in at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anabranch as ab
from anabranch.runtime.ports import Runtime
from anabranch.security.quotas import Quotas
from anabranch.security.store_guard import GuardSettings, StoreGuard
from anabranch.security.tokens import Tokens
from anabranch.store import Store
from anabranch.testing.clock import ManualClock

# What each role may do, said once more, so that a change of the roles fails here.
ROLES: Final = {"reader": "r", "writer": "rw", "operator": "rwcm", "admin": "rwcma", "coder": "p"}
LETTERS: Final = {"read": "r", "write": "w", "create": "c", "manage": "m", "admin": "a", "code": "p"}
ON: Final = ("*", "iot/", "lab/")
KNOWN: Final = tuple(f"{role} on {on}" for role in ROLES for on in ON)
STRANGERS: Final = ("no token", "expired", "revoked", "unknown")


def may(caller: str, needs: str) -> bool:
    """Whether a caller has all of these rights: lower-case letters on the scope `iot`, capitals on the store itself."""
    if caller not in KNOWN:
        return False
    role, _, on = caller.partition(" on ")
    return all(letter.lower() in ROLES[role] and (on == "*" or (on == "iot/" and letter.islower())) for letter in needs)


def may_read(caller: str, stream: str) -> bool:
    """Whether a caller may read a stream by its name."""
    role, _, on = caller.partition(" on ")
    return "r" in ROLES[role] and (on == "*" or stream.startswith(on))


@dataclass
class World:
    """A store with the streams `iot/sensors`, `lab/secret` and `iot/window`, an alias of the latter; its guard, and a
    token for each caller."""

    store: Store
    guard: StoreGuard
    tokens: dict[str, str | None]
    place: Path


@contextmanager
def world(folder: Path, quotas: Quotas | None = None) -> Iterator[World]:
    """`folder` is also the one place that the broker may open."""
    clock = ManualClock()
    with ab.connect(folder / "store", create=True, runtime=Runtime(clock=clock, catalog_clock=clock)) as store:
        for scope in ("iot", "lab"):
            store.scopes.create(scope)
        for name in ("iot/sensors", "iot/done", "lab/secret"):
            store.streams.create(name)
        store.aliases.add("lab/secret", "iot/window")
        issuer = Tokens(store.changes)
        tokens: dict[str, str | None] = {"no token": None, "unknown": f"abt_0a1b2c3d4e5f_{'x' * 43}"}
        for caller in KNOWN:
            role, _, on = caller.partition(" on ")
            tokens[caller] = issuer.issue(f"{role}-{on}", roles=[role], on=[on]).token.reveal()
        revoked = issuer.issue("root", roles=["admin"])
        issuer.revoke([revoked.row.id])
        expired = issuer.issue("root", roles=["admin"], expires_after_us=1)
        clock.pass_time(1)
        tokens |= {"revoked": revoked.token.reveal(), "expired": expired.token.reveal()}
        settings = GuardSettings(quotas or Quotas(), places=(str(folder / "open"),))
        guard = StoreGuard(store, settings)
        try:
            yield World(store, guard, tokens, folder / "open")
        finally:
            guard.close()
