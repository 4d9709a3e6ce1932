"""`anabranch token` and `anabranch role`."""

from __future__ import annotations

import hashlib

from tests.cli.kit import Line


def test_a_token_is_printed_once(sensors: Line) -> None:
    done = sensors("token", "issue", "dash", "--role", "reader", "--on", "iot/", "--expires", "12h")
    token = done.out.strip()
    assert token.startswith("abt_") and token not in done.err
    listed = sensors("token", "list", "--json")
    (row,) = listed.json
    assert (row["principal"], row["roles"], row["operations"], row["on"]) == ("dash", ["reader"], [], ["iot/"])
    shown = sensors("token", "list").out
    for text in (listed.out, shown):
        assert row["id"] in text
        assert token not in text and hashlib.sha256(token.encode()).hexdigest() not in text
    assert sensors("token", "revoke", "--principal", "dash", "--json").json == {"revoked": [row["id"]]}
    assert sensors("token", "list", "--json").json == []


def test_tokens_last_90_days_by_default(sensors: Line) -> None:
    forever = sensors("token", "issue", "a", "--allow", "write", "--allow", "read", "--expires", "never", "--json").json
    assert (forever["expires_at"], forever["operations"], forever["on"]) == (None, ["read", "write"], ["*"])
    assert forever["token"].startswith(f"abt_{forever['id']}_")
    assert sensors("token", "issue", "b", "--json").json["expires_at"] is not None
    assert "never" in sensors("token", "list", "--principal", "a").out
    assert "duration" in sensors.refused("token", "issue", "c", "--expires", "soon")
    assert "--principal" in sensors.refused("token", "revoke")


def test_a_token_that_no_date_can_end_is_refused(sensors: Line) -> None:
    for lifetime in ("365001d", "99999999d"):
        assert "at most 1,000 years" in sensors.refused("token", "issue", "c", "--expires", lifetime)
    assert sensors("token", "list", "--json").json == []
    assert sensors("token", "issue", "c", "--expires", "365000d", "--json").json["expires_at"].startswith("30")


def test_roles_are_defined_bound_and_listed(sensors: Line) -> None:
    sensors("role", "define", "loader", "--allow", "write", "--allow", "create")
    sensors("role", "bind", "loader", "etl", "--on", "iot/")
    sensors("role", "bind", "reader", "oidc:alice@example.com")
    listed = sensors("role", "list", "--json").json
    assert listed["roles"][-1] == {"role": "loader", "operations": ["write", "create"]}
    assert listed["bindings"] == [
        {"principal": "etl", "role": "loader", "on": "iot/"},
        {"principal": "oidc:alice@example.com", "role": "reader", "on": "*"},
    ]
    assert "oidc:alice@example.com" in sensors("role", "list").out
    assert "unbind it first" in sensors.refused("role", "delete", "loader")
    assert sensors("role", "unbind", "loader", "etl", "--json").json == {
        "principal": "etl",
        "unbound": [{"role": "loader", "on": "iot/"}],
    }
    assert sensors("role", "delete", "loader", "--json").json == {"role": "loader"}
    assert "expected '*'" in sensors.refused("role", "bind", "reader", "x", "--on", "iot")
