"""`anabranch token`: the tokens by which callers of a broker are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.declare import argument, new_app, option
from anabranch.cli.options import JSON_OPTION, open_catalog
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, print_result, put_line
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.catalog.state.access import TokenRow

app = new_app()

NEVER: Final = "never"


@app.command()
def issue(
    principal: str = argument("PRINCIPAL", "The principal's name, used by roles and in the audit log."),
    role: list[str] | None = option("--role", "ROLE", "A role that the token has; may be given several times."),
    operation: list[str] | None = option(
        "--allow", "OPERATION", "Or: read, write, create, manage, admin, code; may be given several times."
    ),
    on: list[str] | None = option("--on", "NAMES", "Where: 'iot/', 'iot/sens*', 'iot/sensors'. Default: everywhere."),
    expires: str = option(
        "--expires", "DURATION", "How long the token is valid, such as 12h or 90d; or 'never'.", default="90d"
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Issue a token, which is printed once and can't be shown again. The store keeps only its SHA-256.

    Without --role and --allow, the token may do what the roles of its principal allow at the time of each call; see
    'anabranch role bind'. Running brokers know it within about a second.

    Examples:

      anabranch token issue root --role admin
      anabranch token issue dashboard --role reader --on iot/
      anabranch token issue loader --allow write --on iot/sensors --expires 12h
    """
    from anabranch.model.amounts import to_duration
    from anabranch.security.tokens import Tokens

    after_us = None if expires == NEVER else to_duration(expires)
    with open_catalog() as names:
        made = Tokens(names.changes).issue(
            principal, roles=role or (), operations=operation or (), on=on or (), expires_after_us=after_us
        )
    if as_json:
        print_json({**_token_json(made.row), "token": made.token.reveal()})
        return
    put_line(made.token.reveal())
    until = iso_time(made.row.expires_at)
    print_note(
        f"token {made.row.id} of '{principal}' {'does not expire' if until is None else f'expires at {until}'}; "
        "copy it now: it is not shown again"
    )


@app.command("list")
def list_tokens(
    principal: str | None = option("--principal", "NAME", "Only the tokens of one."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List the tokens, the oldest first: whose they are, what they may do, and until when. Never a token itself.

    Example:

      anabranch token list --principal dashboard
    """
    from anabranch.security.tokens import Tokens

    with open_catalog() as names:
        rows, now = Tokens(names.changes).list(principal), names.now
    if as_json:
        print_json([_token_json(row) for row in rows])
        return
    print_columns(
        ("ID", "PRINCIPAL", "MAY", "ON", "CREATED", "EXPIRES"),
        [
            (
                row.id,
                row.principal,
                ", ".join((*row.roles, *row.operations)) or "as its roles",
                ", ".join(row.on),
                iso_time(row.created_at),
                _expiry(row, now),
            )
            for row in rows
        ],
    )


@app.command()
def revoke(
    ids: list[str] | None = argument("[ID]...", "The ids of tokens.", default=None),
    principal: str | None = option("--principal", "NAME", "Revoke all tokens of this principal."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Revoke tokens. Running brokers refuse them within about a second, also in calls that have begun.

    Examples:

      anabranch token revoke 0a1b2c3d4e5f
      anabranch token revoke --principal dashboard
    """
    from anabranch.security.tokens import Tokens

    if not ids and principal is None:
        raise InvalidArgument("pass the ids of the tokens, or --principal NAME for all tokens of a principal")
    with open_catalog() as names:
        gone = Tokens(names.changes).revoke(ids or (), principal=principal)
    print_result(
        as_json, {"revoked": list(gone)}, f"revoked: {', '.join(gone)}" if gone else f"'{principal}' has no tokens"
    )


def _expiry(row: TokenRow, now: int) -> str:
    if row.expires_at is None:
        return NEVER
    return "expired" if row.expires_at <= now else str(iso_time(row.expires_at))


def _token_json(row: TokenRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "principal": row.principal,
        "roles": list(row.roles),
        "operations": list(row.operations),
        "on": list(row.on),
        "created_at": iso_time(row.created_at),
        "expires_at": iso_time(row.expires_at),
    }
