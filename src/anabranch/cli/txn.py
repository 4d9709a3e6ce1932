"""`anabranch txn`: open transactions, and those that ended recently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, flag, new_app
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, iso_time, print_columns, print_json, print_note, print_result, put_line
from anabranch.errors import InvalidArgument, TransactionNotFound
from anabranch.model.transaction import TransactionInfo, TransactionState

if TYPE_CHECKING:
    from anabranch.store import Store

app = new_app()

ID_ARGUMENT: Final = argument("ID", "The transaction's id, or a unique prefix of it.")


@app.command("list")
def list_(
    every: bool = flag("--all", "Also those that ended less than a week ago."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List open transactions.

    Examples:

      anabranch txn list
      anabranch txn list --all --json
    """
    with open_store() as opened:
        found = opened.transactions.list(ended=every)
    if as_json:
        print_json([_info_to_json(each) for each in found])
    elif found:
        rows = [
            (
                each.id,
                each.state.value,
                sum(each.events.values()),
                len(each.events),
                iso_time(each.begun_at),
                iso_time(each.expires_at if each.ended_at is None else each.ended_at),
            )
            for each in found
        ]
        print_columns(("TRANSACTION", "STATE", "EVENTS", "STREAMS", "BEGUN", "ENDS OR ENDED"), rows)
    else:
        print_note("no transactions" if every else "no open transactions; --all also shows those that ended recently")


@app.command()
def show(ident: str = ID_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show a transaction: its state and what it holds for each stream.

    Example:

      anabranch txn show 5f0c
    """
    with open_store() as opened:
        info = _find(opened, ident)
        streams = {stream: opened.streams.find(stream) for stream in info.events}
    if as_json:
        print_json(_info_to_json(info))
        return
    put_line(f"transaction {info.id}: {info.state.value}" + ("" if info.reason is None else f", {info.reason}"))
    put_line(f"begun {iso_time(info.begun_at)}, " + _end(info))
    for stream, count in info.events.items():
        found = streams[stream]
        put_line(f"  {'a deleted stream' if found is None else found.name}: {counted(count, 'event')}")


@app.command()
def abort(ident: str = ID_ARGUMENT, yes: bool = YES_OPTION, as_json: bool = JSON_OPTION) -> None:
    """Abort an open transaction: its events never become visible, and its owner gets an error. A second call is
    harmless.

    Example:

      anabranch txn abort 5f0c --yes
    """
    with open_store() as opened:
        info = _find(opened, ident)
        if info.state is not TransactionState.ABORTED:
            if info.state is TransactionState.OPEN:
                held = counted(sum(info.events.values()), "event")
                confirm(f"Abort transaction {info.id} with the {held} flushed so far?", yes=yes)
            opened.transaction(info.id).abort("it was aborted from the command line")
            info = _find(opened, info.id)
    print_result(as_json, _info_to_json(info), f"transaction {info.id} is aborted")


def _find(store: Store, ident: str) -> TransactionInfo:
    """Returns the one transaction whose id begins with `ident`. Raises TransactionNotFound; InvalidArgument if
    several do."""
    found = [each for each in store.transactions.list() if each.id.startswith(ident)]
    if not found:
        raise TransactionNotFound(ident)
    if len(found) > 1 or not ident:
        raise InvalidArgument(
            f"the ids of {counted(len(found), 'transaction')} begin with '{ident}'; pass a longer prefix"
        )
    return found[0]


def _end(info: TransactionInfo) -> str:
    if info.ended_at is not None:
        return f"ended {iso_time(info.ended_at)}"
    return f"ends {iso_time(info.expires_at)} unless it is written to or pinged"


def _info_to_json(info: TransactionInfo) -> dict[str, object]:
    return {
        "id": info.id,
        "state": info.state.value,
        "reason": info.reason,
        "begun_at": iso_time(info.begun_at),
        "expires_at": iso_time(info.expires_at),
        "ended_at": None if info.ended_at is None else iso_time(info.ended_at),
        "events": {f"{stream:016x}": count for stream, count in info.events.items()},
    }
