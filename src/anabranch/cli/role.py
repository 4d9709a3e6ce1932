"""`anabranch role`: who may do what through a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from anabranch.cli.declare import argument, new_app, option
from anabranch.cli.options import JSON_OPTION, open_catalog
from anabranch.cli.output import print_columns, print_json, print_result, put_line

if TYPE_CHECKING:
    from anabranch.security.roles import Roles

app = new_app()

_ROLE_ARGUMENT: Final = argument("ROLE", "reader, writer, operator, admin, coder, or one that was defined.")
_PRINCIPAL_ARGUMENT: Final = argument(
    "PRINCIPAL", "The name of a token's principal; or cert:NAME, oidc:NAME, group:NAME."
)


@app.command()
def define(
    role: str = argument("ROLE", "The name of the role."),
    operation: list[str] = option(
        "--allow", "OPERATION", "read, write, create, manage, admin, code; may be given several times.", default=...
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Define a role, or change what it allows, at once for all who have it.

    Example:

      anabranch role define loader --allow write --allow create
    """
    with _open_roles() as roles:
        row = roles.define(role, operation)
    print_result(
        as_json,
        {"role": row.name, "operations": list(row.operations)},
        f"role '{role}' allows {', '.join(row.operations)}",
    )


@app.command()
def delete(role: str = _ROLE_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Delete a role that nobody has.

    Example:

      anabranch role delete loader
    """
    with _open_roles() as roles:
        roles.delete(role)
    print_result(as_json, {"role": role}, f"role '{role}' is deleted")


@app.command("list")
def list_roles(as_json: bool = JSON_OPTION) -> None:
    """List the roles and what they allow, and who has them and where.

    Example:

      anabranch role list
    """
    with _open_roles() as roles:
        found, bindings = roles.list(), roles.bindings()
    bound = [(row.principal, each.role, each.on) for row in bindings for each in row.roles]
    if as_json:
        print_json(
            {
                "roles": [{"role": name, "operations": list(allowed)} for name, allowed in found.items()],
                "bindings": [{"principal": who, "role": role, "on": on} for who, role, on in bound],
            }
        )
        return
    print_columns(("ROLE", "ALLOWS"), [(name, ", ".join(allowed)) for name, allowed in found.items()])
    if bound:
        put_line()
        print_columns(("PRINCIPAL", "ROLE", "ON"), bound)


@app.command()
def bind(
    role: str = _ROLE_ARGUMENT,
    principal: str = _PRINCIPAL_ARGUMENT,
    on: str = option("--on", "NAMES", "Where: 'iot/', 'iot/sens*', 'iot/sensors', or '*' everywhere.", default="*"),
    as_json: bool = JSON_OPTION,
) -> None:
    """Give a role to a principal. Running brokers know it within about a second.

    Examples:

      anabranch role bind reader dashboard --on iot/
      anabranch role bind operator oidc:alice@example.com
    """
    with _open_roles() as roles:
        row = roles.bind(role, principal, on)
    print_result(
        as_json,
        {"principal": row.principal, "roles": [each._asdict() for each in row.roles]},
        f"'{principal}' has role '{role}' on '{on}'",
    )


@app.command()
def unbind(
    role: str = _ROLE_ARGUMENT,
    principal: str = _PRINCIPAL_ARGUMENT,
    on: str | None = option("--on", "NAMES", "Only where it was bound so. Default: everywhere."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Take a role from a principal. Running brokers know it within about a second.

    Tokens that were issued with rights of their own keep these: revoke them by 'anabranch token revoke'.

    Example:

      anabranch role unbind reader dashboard --on iot/
    """
    with _open_roles() as roles:
        gone = roles.unbind(role, principal, on)
    print_result(
        as_json,
        {"principal": principal, "unbound": [each._asdict() for each in gone]},
        f"'{principal}' no longer has role '{role}' on {', '.join(repr(each.on) for each in gone)}",
    )


@contextmanager
def _open_roles() -> Iterator[Roles]:
    from anabranch.security.roles import Roles

    with open_catalog() as names:
        yield Roles(names.changes)
