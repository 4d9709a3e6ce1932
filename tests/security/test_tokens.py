"""Tokens: issued once, known by their hash, seen and revoked by running brokers."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.access import ACCESS_TOKEN
from anabranch.catalog.state.kinds import KINDS
from anabranch.errors import InvalidArgument, PermissionDenied, StoreUnavailable, Unauthenticated
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import Guard, Operation, Principal
from anabranch.security.roles import Roles
from anabranch.security.secret import Secret
from anabranch.security.store_guard import StoreGuard
from anabranch.security.tokens import Tokens
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.waiting import until


def enter(guard: Guard, token: Secret) -> Principal:
    return guard.authenticate(token=token.reveal(), certificate=None, peer="10.0.0.9")


def knows(guard: Guard, token: Secret) -> bool:
    try:
        return bool(enter(guard, token))
    except Unauthenticated:
        return False


def test_a_running_broker_knows_a_new_token_and_its_rights(store: Store, guard: StoreGuard) -> None:
    made = Tokens(store.changes).issue("dash", roles=["reader"], on=["iot/"])
    until(lambda: knows(guard, made.token))
    principal = enter(guard, made.token)
    assert (principal.name, principal.token, principal.peer) == ("dash", made.row.id, "10.0.0.9")
    guard.authorize(principal, "read", "iot/sensors")
    denied: list[tuple[Operation, str | None]] = [
        *(("write", "iot/sensors"), ("read", "lab/x"), ("read", None), ("read", "iot/_marks"))
    ]
    for operation, resource in denied:
        with pytest.raises(PermissionDenied, match="'dash' may not"):
            guard.authorize(principal, operation, resource)
        assert not guard.allows(principal, operation, resource)


def test_a_revoked_token_is_refused_also_in_a_call_that_has_begun(store: Store, guard: StoreGuard) -> None:
    made = Tokens(store.changes).issue("dash", roles=["reader"])
    until(lambda: knows(guard, made.token))
    principal = enter(guard, made.token)
    assert guard.allows(principal, "read", "iot/sensors")
    assert Tokens(store.changes).revoke([made.row.id]) == (made.row.id,)
    until(lambda: not knows(guard, made.token))
    with pytest.raises(Unauthenticated, match="revoked"):
        guard.authorize(principal, "read", "iot/sensors")
    assert Tokens(store.changes).list() == []


def test_a_token_without_rights_of_its_own_follows_the_roles_of_its_principal(store: Store, guard: StoreGuard) -> None:
    made, roles = Tokens(store.changes).issue("dash"), Roles(store.changes)
    until(lambda: knows(guard, made.token))
    principal = enter(guard, made.token)
    assert not guard.allows(principal, "write", "iot/sensors")
    roles.define("loader", ["write"])
    roles.bind("loader", "dash", "iot/sens*")
    until(lambda: guard.allows(principal, "write", "iot/sensors"))
    assert not guard.allows(principal, "read", "iot/sensors")
    roles.define("loader", ["read"])
    until(lambda: guard.allows(principal, "read", "iot/sensors"))
    assert not guard.allows(principal, "write", "iot/sensors")
    assert roles.unbind("loader", "dash") == (("loader", "iot/sens*"),)
    until(lambda: not guard.allows(principal, "read", "iot/sensors"))


def test_an_expired_token_is_refused_also_in_a_call_that_has_begun() -> None:
    clock = ManualClock()
    with ab.connect("memory://", create=True, runtime=Runtime(clock=clock, catalog_clock=clock)) as store:
        tokens = Tokens(store.changes)
        made = tokens.issue("dash", operations=["read"], expires_after_us=20_000_000)
        guard = StoreGuard(store)
        principal = enter(guard, made.token)
        clock.pass_time(19_999_999)
        assert guard.allows(principal, "read", "iot/x")
        clock.pass_time(1)
        with pytest.raises(Unauthenticated, match="expired"):
            enter(guard, made.token)
        with pytest.raises(Unauthenticated, match="expired"):
            guard.authorize(principal, "read", "iot/x")
        assert [row.id for row in tokens.list("dash")] == [made.row.id]
        clock.pass_time(31 * 24 * 3600 * 1_000_000)
        tokens.issue("other")
        assert tokens.list("dash") == [], "forgotten a while after it expired"
        guard.close()


def test_only_the_hash_of_a_token_is_in_the_catalog(store: Store, tmp_path: Path) -> None:
    made = Tokens(store.changes).issue("dash", roles=["admin"])
    secret = made.token.reveal().rpartition("_")[2]
    with store.catalog.reading() as reading:
        assert [row.id for _, row in reading.states(ACCESS_TOKEN)] == [made.row.id]
        for kind in KINDS.values():
            for key, value in reading.states(kind):
                assert secret not in kind.entry(key, value).value
    files = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if secret.encode() in file.read_bytes()]


@pytest.mark.parametrize(
    "sent", ["", "abt_", "abt_0a1b2c3d4e5f_x", "eyJhbGciOiJub25lIn0.e30.", "x" * 20_000, "\udce4", "ä"]
)
def test_what_is_no_token_is_unauthenticated(guard: StoreGuard, sent: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        guard.authenticate(token=sent, certificate="also.there", peer="p")
    assert not sent or len(sent) < 5 or sent not in str(refused.value)


def test_without_a_token_a_certificate_names_the_caller(guard: StoreGuard) -> None:
    assert guard.authenticate(token=None, certificate="spark.internal", peer="p").name == "cert:spark.internal"
    with pytest.raises(Unauthenticated, match="no token"):
        guard.authenticate(token=None, certificate=None, peer="p")


def test_tokens_and_roles_that_make_no_sense_are_refused(store: Store) -> None:
    tokens, roles = Tokens(store.changes), Roles(store.changes)
    for call in (
        lambda: tokens.issue("x", roles=["nobody"]),
        lambda: tokens.issue("x", operations=["fly"]),
        lambda: tokens.issue("x", on=["iot/"]),
        lambda: tokens.issue("cert:x"),
        lambda: tokens.issue("x", expires_after_us=0),
        lambda: tokens.revoke(["000000000000"]),
        lambda: roles.bind("nobody", "x"),
        lambda: roles.define("admin", ["read"]),
        lambda: roles.define("mine", []),
        lambda: roles.unbind("reader", "x"),
        lambda: roles.delete("nobody"),
    ):
        with pytest.raises(InvalidArgument):
            call()
    assert (tokens.list(), roles.bindings(), len(roles.list())) == ([], [], 5)


def test_a_role_in_use_is_not_deleted(store: Store) -> None:
    tokens, roles = Tokens(store.changes), Roles(store.changes)
    roles.define("mine", ["read"])
    made = tokens.issue("x", roles=["mine"])
    with pytest.raises(InvalidArgument, match="revoke it first"):
        roles.delete("mine")
    tokens.revoke([made.row.id])
    roles.bind("mine", "y")
    with pytest.raises(InvalidArgument, match="unbind it first"):
        roles.delete("mine")
    roles.unbind("mine", "y", "*")
    roles.delete("mine")
    assert "mine" not in roles.list()


def test_a_secret_is_shown_nowhere() -> None:
    secret = Secret("hunter2")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>20}", repr([secret]), repr({"a": secret})]
    try:
        raise ValueError(secret)
    except ValueError as exc:
        shown.append("".join(traceback.TracebackException.from_exception(exc, capture_locals=True).format()))
    assert not any("hunter2" in each.replace('Secret("hunter2")', "") for each in shown)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret == Secret("hunter2") != Secret("other")
    assert secret.reveal() == "hunter2"


def test_a_broker_that_can_t_look_up_who_may_do_what_serves_nobody() -> None:
    clock = ManualClock()
    with ab.connect("memory://", create=True, runtime=Runtime(clock=clock, catalog_clock=clock)) as store:
        guard = StoreGuard(store)
        admin = Principal("root", ("admin",))
        guard.authorize(admin, "read", "iot/x")
        guard.close()  # it looks no more
        clock.pass_time(int(limits.ACCESS_STALE_S * 1e6) + 1)
        assert not guard.allows(admin, "read", "iot/x")
        with pytest.raises(StoreUnavailable, match="could not look up"):
            guard.authorize(admin, "read", "iot/x")
