"""What rules allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.security.guard import Operation
from anabranch.security.rights import (
    BUILT_IN_ROLES,
    OPERATIONS,
    Rule,
    check_operations,
    check_pattern,
    check_principal,
    refusal,
)

NAMES = st.from_regex(r"\A[a-z_][a-z_.\-]{0,4}/([a-z_][a-z_.\-]{0,4})?\Z")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*", ["iot/", "iot/sensors", "a/b"], []),
        ("iot/", ["iot/", "iot/sensors"], ["iot2/sensors", "io/t"]),
        ("iot/sens*", ["iot/sens", "iot/sensors"], ["iot/", "iot/sen", "lab/sensors"]),
        ("team-*", ["team-a/x", "team-b/"], ["team/x"]),
        ("iot/sensors", ["iot/sensors"], ["iot/sensors2", "iot/sensor", "iot/"]),
    ],
)
def test_a_pattern_matches_a_scope_a_beginning_or_one_name(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    rule = Rule(BUILT_IN_ROLES["reader"], check_pattern(pattern))
    assert [name for name in (*matching, *others) if rule.allows("read", name)] == matching
    assert not any(rule.allows("write", name) for name in matching)


def test_a_refusal_says_which_right_is_missing_and_who_grants_it() -> None:
    grants = "which an administrator of the store grants"
    assert refusal("alice", "code", None, kept=False) == (
        f"'alice' may not deploy Python code: it requires the right 'code', {grants} (role 'coder')"
    )
    assert refusal("alice", "admin", None, kept=False).startswith("'alice' may not administer the store: ")
    assert "may not read the store: it requires the right 'read'" in refusal("alice", "read", None, kept=False)
    assert refusal("alice", "manage", "iot/sensors", kept=False) == (
        f"'alice' may not change or delete 'iot/sensors': it requires the right 'manage', {grants} (role 'operator')"
    )
    assert refusal("alice", "create", "iot/", kept=False).endswith("grants (role 'operator')")
    assert refusal("alice", "write", "_store/audit", kept=True) == (
        "'alice' may not write to '_store/audit': only the store itself may, and no role allows it"
    )


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_role_of_a_refusal_has_the_right(operation: Operation) -> None:
    role = refusal("alice", operation, "a/b", kept=False).partition("(role '")[2].removesuffix("')")
    assert operation in BUILT_IN_ROLES[role]


def test_the_store_itself_is_open_to_a_rule_on_everything_alone() -> None:
    assert Rule(BUILT_IN_ROLES["admin"], "*").allows("admin", None)
    assert not Rule(BUILT_IN_ROLES["admin"], "iot/").allows("admin", None)


@given(NAMES)
def test_internal_names_are_hidden_from_all_but_admins_and_rules_that_spell_them(name: str) -> None:
    internal = name.startswith("_") or "/_" in name
    for role, operations in BUILT_IN_ROLES.items():
        reads = "read" in operations and (role == "admin" or not internal)
        assert Rule(operations, "*").allows("read", name) is reads
    assert Rule(BUILT_IN_ROLES["reader"], name).allows("read", name)


def test_a_scope_s_prefix_does_not_open_its_internal_streams() -> None:
    assert not Rule(BUILT_IN_ROLES["operator"], "iot/").allows("read", "iot/_marks")
    assert Rule(BUILT_IN_ROLES["reader"], "iot/_marks").allows("read", "iot/_marks")
    assert Rule(BUILT_IN_ROLES["reader"], "_store/audit").allows("read", "_store/audit")


@pytest.mark.parametrize(
    "text", ["", "iot", "iot//", "/iot", "**", "iot/*x", "i ot/", "../x", "iot/a/b", "*/x", "x" * 500]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a pattern of names"):
        check_pattern(text)


def test_spellings_are_made_one() -> None:
    assert check_pattern("iot/*") == "iot/"
    assert check_operations(["write", "read", "write"]) == ("read", "write")
    assert BUILT_IN_ROLES["admin"] | BUILT_IN_ROLES["coder"] == set(OPERATIONS)
    for name in ("", "a b", "a\n", "x" * 201):
        with pytest.raises(InvalidArgument):
            check_principal(name)
