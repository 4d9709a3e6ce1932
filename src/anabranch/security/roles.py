"""Roles: defined, bound to principals, and listed."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.access import ACCESS_BINDING, ACCESS_ROLE, ACCESS_TOKEN, BindingRow, BoundRole, RoleRow
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.security.access import note_change
from anabranch.security.rights import (
    BUILT_IN_ROLES,
    EVERYTHING,
    OPERATIONS,
    check_operations,
    check_pattern,
    check_principal,
    check_role,
)
from anabranch.streams.change import Changes
from anabranch.streams.requests import Result


class Roles(Displayed):
    """The roles of a store, and who has them. Brokers notice a change within about a second."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def define(self, name: str, operations: Iterable[str]) -> RoleRow:
        """Define a role, or change its operations, at once for all who have it. Raises InvalidArgument, also for the
        name of a built-in role."""
        row = RoleRow(check_role(name), check_operations(operations))
        if not row.operations:
            raise InvalidArgument(f"pass what role '{name}' allows: one or more of {', '.join(OPERATIONS)}")
        _reject_built_in(name)

        def change(txn: Writing, now: Micros) -> Result:
            if txn.state(ACCESS_ROLE, name) is None and len(txn.states(ACCESS_ROLE)) >= limits.ROLES_MAX:
                raise InvalidArgument(f"the store has {limits.ROLES_MAX} roles, its limit: delete one first")
            txn.put_state(ACCESS_ROLE, name, row)
            note_change(txn)
            return {}

        self._changes.apply(f"define role {name}", None, change)
        return row

    def delete(self, name: str) -> None:
        """Delete a role that nobody has. Raises InvalidArgument where it is bound to a principal, named by a token,
        built-in or unknown."""
        _reject_built_in(check_role(name))

        def change(txn: Writing, now: Micros) -> Result:
            need_role(txn, name)
            for _, row in txn.states(ACCESS_BINDING):
                if any(bound.role == name for bound in row.roles):
                    raise InvalidArgument(f"'{row.principal}' has role '{name}': unbind it first")
            for _, token in txn.states(ACCESS_TOKEN):
                if name in token.roles:
                    raise InvalidArgument(f"token {token.id} of '{token.principal}' has role '{name}': revoke it first")
            txn.drop_state(ACCESS_ROLE, name)
            note_change(txn)
            return {}

        self._changes.apply(f"delete role {name}", None, change)

    def bindings(self) -> list[BindingRow]:
        """Who has which roles, by the principal's name."""
        with self._changes.catalog.reading() as txn:
            return [row for _, row in txn.states(ACCESS_BINDING)]

    def list(self) -> dict[str, tuple[str, ...]]:
        """All roles and what they allow, the built-in ones first."""
        with self._changes.catalog.reading() as txn:
            own = [row for _, row in txn.states(ACCESS_ROLE)]
        found = {name: check_operations(allowed) for name, allowed in BUILT_IN_ROLES.items()}
        return found | {row.name: row.operations for row in own}

    def bind(self, role: str, principal: str, on: str = EVERYTHING) -> BindingRow:
        """Give a role to a principal, on the names that match. A repeated call changes nothing. Raises
        InvalidArgument."""
        bound = BoundRole(role, check_pattern(on))
        check_principal(principal)

        def change(txn: Writing, now: Micros) -> Result:
            need_role(txn, role)
            found = txn.state(ACCESS_BINDING, principal)
            roles = sorted({bound, *(() if found is None else found.roles)})
            if len(roles) > limits.ROLES_MAX:
                raise InvalidArgument(
                    f"'{principal}' has {limits.ROLES_MAX} roles, the limit: bind one on '*' or a scope"
                )
            txn.put_state(ACCESS_BINDING, principal, BindingRow(principal, tuple(roles)))
            note_change(txn)
            return {"roles": roles}

        done = self._changes.apply(f"bind role {role} on {on} to {principal}", None, change)
        return BindingRow(principal, tuple(BoundRole(*each) for each in done["roles"]))

    def unbind(self, role: str, principal: str, on: str | None = None) -> tuple[BoundRole, ...]:
        """Take a role from a principal, on names as it was bound, or everywhere. Returns what was taken. Raises
        InvalidArgument if the principal has no such role."""
        wanted = None if on is None else check_pattern(on)

        def change(txn: Writing, now: Micros) -> Result:
            found = txn.state(ACCESS_BINDING, principal)
            bound = () if found is None else found.roles
            gone = [each for each in bound if each.role == role and wanted in (None, each.on)]
            if not gone:
                where = "" if wanted is None else f" on '{wanted}'"
                raise InvalidArgument(f"'{principal:.100}' has no role '{role:.100}'{where}")
            left = tuple(each for each in bound if each not in gone)
            if left:
                txn.put_state(ACCESS_BINDING, principal, BindingRow(principal, left))
            else:
                txn.drop_state(ACCESS_BINDING, principal)
            note_change(txn)
            return {"gone": gone}

        done = self._changes.apply(f"unbind role {role} from {principal}", None, change)
        return tuple(BoundRole(*each) for each in done["gone"])


def need_role(txn: Reading, name: str) -> None:
    """Check that a role exists. Raises InvalidArgument if it does not."""
    if name in BUILT_IN_ROLES:
        return
    if txn.state(ACCESS_ROLE, check_role(name)) is None:
        known = [*BUILT_IN_ROLES, *(row.name for _, row in txn.states(ACCESS_ROLE))]
        raise InvalidArgument(f"role '{name}' not found; expected one of {', '.join(known[:20])}")


def _reject_built_in(name: str) -> None:
    if name in BUILT_IN_ROLES:
        raise InvalidArgument(f"role '{name}' is built-in and can't be changed: choose another name")
