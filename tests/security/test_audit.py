"""The audit stream."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import PermissionDenied, StreamNotFound, StreamSealed, Unauthenticated
from anabranch.security.audit import AUDIT, DROPPED, Audit, AuditKey
from anabranch.security.guard import Principal
from anabranch.security.roles import Roles
from anabranch.security.store_guard import StoreGuard
from anabranch.store import Store
from tests.store.helpers import bodies_of
from tests.waiting import until

ADMIN = Principal("root", ("admin",), peer="::1")


def notes(store: Store) -> list[dict[str, Any]]:
    return [
        {name: body[name] for name in ("verb", "resource", "outcome", "count")} for body in bodies_of(store, str(AUDIT))
    ]


def key(verb: str) -> AuditKey:
    return AuditKey("p", verb, None, "ok", None, None, "")


def test_management_calls_and_refusals_are_noted_with_who_and_from_where(store: Store, guard: StoreGuard) -> None:
    guard.record(ADMIN, "streams.delete", "iot/old", None)
    guard.record(ADMIN, "streams.delete", "iot/gone", StreamNotFound("iot/gone"))
    nobody = Principal("nobody", token="0a1b2c3d4e5f", peer="10.0.0.9")
    with pytest.raises(Unauthenticated):
        guard.authorize(nobody, "read", "iot/sensors")
    for _ in range(3):
        with pytest.raises(PermissionDenied) as denied:
            guard.authorize(Principal("nobody", peer="10.0.0.9"), "write", "iot/sensors", verb="append")
        guard.record(ADMIN, "append", None, denied.value)  # noted already
    with pytest.raises(Unauthenticated):
        guard.authenticate(token="abt_wrong", certificate=None, peer="10.0.0.9")
    guard.close()
    assert notes(store) == [
        {"verb": "streams.delete", "resource": "iot/old", "outcome": "ok", "count": 1},
        {"verb": "streams.delete", "resource": "iot/gone", "outcome": "StreamNotFound", "count": 1},
        {"verb": "append", "resource": "iot/sensors", "outcome": "PermissionDenied", "count": 3},
        {"verb": "authenticate", "resource": None, "outcome": "Unauthenticated", "count": 1},
    ]
    rows = bodies_of(store, str(AUDIT))
    assert [(row["principal"], row["peer"]) for row in rows[2:]] == [("nobody", "10.0.0.9"), ("unknown", "10.0.0.9")]
    assert "abt_wrong" not in str(rows)
    assert store.policies.retention(AUDIT) is not None


def test_nobody_changes_the_audit_stream_through_a_broker(store: Store, guard: StoreGuard) -> None:
    guard.authorize(ADMIN, "read", str(AUDIT))
    for operation in ("write", "create", "manage"):
        for resource in (str(AUDIT), "_store/"):
            with pytest.raises(PermissionDenied):
                guard.authorize(ADMIN, operation, resource)
    Roles(store.changes).bind("reader", "auditor", str(AUDIT))
    until(lambda: guard.allows(Principal("auditor"), "read", str(AUDIT)))
    assert not guard.allows(Principal("auditor"), "read", "iot/sensors")


def test_what_does_not_fit_is_counted_and_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_PENDING_MAX", 2)
    monkeypatch.setattr(limits, "AUDIT_FLUSH_S", 3600.0)
    audit = Audit(store)
    for number in range(5):
        audit.note(key(f"v{number}"))
    audit.note(key("v0"))
    assert audit.dropped == 3
    audit.close()
    assert [(row["verb"], row["count"]) for row in notes(store)] == [("v0", 2), ("v1", 1), (DROPPED, 3)]


def test_while_the_stream_can_t_be_written_notes_wait_for_the_next_round(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_FLUSH_S", 3600.0)
    audit = Audit(store)
    audit.note(key("first"))
    audit.flush()
    store.streams.seal(AUDIT)
    audit.note(key("second"))
    with pytest.raises(StreamSealed):
        audit.flush()
    audit.note(key("second"))
    store.streams.delete(AUDIT)
    audit.close()
    assert [(row["verb"], row["count"]) for row in notes(store)] == [("second", 2)]
