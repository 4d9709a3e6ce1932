"""What hosts do with the rows of queries: take a query whose lease is free, renew it, report, and give it back.

Every change checks that the row is still in the epoch of this host, so a host that has lost a query changes nothing any
more. The driver of such a host publishes nothing more either: the next driver takes the pipeline's row from it, and
every publication of results checks this row (`anabranch.spark.pipelines.record.refuse_lost`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.pipeline import PIPELINE, StoredPipeline
from anabranch.catalog.state.query import (
    QUERY,
    QueryLease,
    QueryRefusal,
    QueryRestart,
    QueryRow,
    QueryStandby,
    QueryState,
)
from anabranch.catalog.state.query_version import QueryVersion
from anabranch.deployments.admission import is_announced
from anabranch.deployments.files import contents_of
from anabranch.deployments.record import all_queries, drop_query, need_version, put_query, subject_of, versions_of
from anabranch.deployments.signatures import check_signed
from anabranch.errors import Conflict
from anabranch.model.ids import Micros

__all__ = [
    "begin_in_standby",
    "begin_run",
    "checked_contents",
    "claim",
    "claim_standby",
    "followed_version",
    "is_free",
    "kept_versions",
    "leaves_to_standby",
    "note_restart",
    "queries",
    "refuse",
    "release",
    "release_standby",
    "remove",
    "renew",
    "runs_python",
    "update",
    "update_standby",
    "wants_standby",
    "without_standby",
]


def queries(catalog: Catalog) -> list[QueryRow]:
    """All queries, by name."""
    with catalog.reading() as txn:
        return all_queries(txn)


def is_free(row: QueryRow, now: Micros) -> bool:
    """True if a host may take the query: no host has it, and there is something to do for one."""
    if row.lease is not None and row.lease.until > now:
        return False
    if row.wanted == "running":
        return row.state != "failed"
    return row.wanted == "deleted" or row.state not in ("stopped", "failed")


def claim(catalog: Catalog, name: str, lease: QueryLease, *, now: Micros) -> QueryRow | None:
    """Take a query in a new epoch; None if it is not free, or gone."""
    with catalog.writing(subject_of(name)) as txn:
        row = txn.state(QUERY, name)
        if row is None or not is_free(row, now):
            return None
        row = replace(row, epoch=row.epoch + 1, lease=lease, refusal=None)
        put_query(txn, row)
    return row


def refuse(catalog: Catalog, row: QueryRow, host: str, reason: str, *, now: Micros, standby: bool = False) -> None:
    """Note why this host leaves a free query, or its hot `standby` that no host has, unless the row says so already."""
    if is_announced(row.standby_refusal if standby else row.refusal, host, reason, now):
        return
    refusal = QueryRefusal(host, reason, now)
    with catalog.writing(subject_of(row.name)) as txn:
        found = txn.state(QUERY, row.name)
        if found is None:
            return
        if not standby and is_free(found, now):
            put_query(txn, replace(found, refusal=refusal))
        if standby and found.standby == "hot" and (found.hot_standby is None or found.hot_standby.until <= now):
            put_query(txn, replace(found, standby_refusal=refusal))


def renew(catalog: Catalog, name: str, epoch: int, *, until: Micros) -> QueryRow:
    """Prolong the lease, even if it has expired but no other host has taken the query. Returns the row. Raises Conflict."""
    return update(catalog, name, epoch, lambda row: replace(row, lease=_lease(row, until)))


def update(catalog: Catalog, name: str, epoch: int, change: Callable[[QueryRow], QueryRow]) -> QueryRow:
    """Change the row of a query that this host has in `epoch`. Returns it. Raises Conflict if it has lost it."""
    with catalog.writing(subject_of(name)) as txn:
        row = _need_row(txn, name, epoch)
        changed = change(row)
        if changed != row:
            put_query(txn, changed)
    return changed


def release(catalog: Catalog, name: str, epoch: int) -> None:
    """Give a query back, for the next host to take at once. Does nothing if it was lost."""
    try:
        update(catalog, name, epoch, lambda row: replace(row, lease=None, state=_state_after_release(row)))
    except Conflict:
        return


def remove(catalog: Catalog, name: str, epoch: int) -> None:
    """Remove a query whose deletion is done. Raises Conflict."""
    with catalog.writing() as txn:  # it lists the versions, which a transaction on one subject can't
        _need_row(txn, name, epoch)
        drop_query(txn, name)


def begin_run(
    catalog: Catalog, name: str, epoch: int, change: int
) -> tuple[QueryRow, QueryVersion, QueryRestart | None]:
    """What a driver is to run: the row, the version, and where it starts over (None if it continues, or has started
    over already). Raises Conflict if the host has lost the query, or if the query was changed after `change`: the host
    has chosen the driver for that change, and a later one may have Python code, which needs a driver of its own, or
    another group."""
    with catalog.writing(subject_of(name)) as txn:
        row = _need_row(txn, name, epoch)
        if row.change != change:
            raise Conflict(f"query '{name}' has been changed before it began")
        version, restart, pipeline = need_version(txn, name, row.version), row.restart, txn.state(PIPELINE, name)
        if restart is not None and restart.generation is None:
            restart = replace(restart, generation=1 if pipeline is None else pipeline.generation + 1)
            row = replace(row, restart=restart)
            put_query(txn, row)
    if restart is None or restart.generation is None or pipeline is None or not pipeline.prepared:
        return row, version, restart
    return row, version, None if pipeline.generation >= restart.generation else restart


def note_restart(catalog: Catalog, name: str, epoch: int, restart: QueryRestart, only: Sequence[str]) -> QueryRestart:
    """Store which statements start over. Returns the restart with them. Raises Conflict if another restart was
    requested."""
    with catalog.writing(subject_of(name)) as txn:
        row = _need_row(txn, name, epoch)
        if row.restart != restart:
            raise Conflict(f"query '{name}' was changed or deleted meanwhile")
        noted = replace(restart, only=tuple(sorted(only)))
        put_query(txn, replace(row, restart=noted))
    return noted


def kept_versions(catalog: Catalog, name: str) -> list[QueryVersion]:
    """The versions of a query that are kept, oldest first."""
    with catalog.reading() as txn:
        return versions_of(txn, name)


def checked_contents(catalog: Catalog, version: QueryVersion) -> dict[str, bytes]:
    """The contents of the files of a version that is about to run, by name. Raises PermissionDenied if it is not signed as
    it has to be, CorruptCatalog for a content that is not the one that was deployed."""
    with catalog.reading() as txn:
        check_signed(txn, version)
        return contents_of(txn, version.files)


def runs_python(catalog: Catalog, row: QueryRow) -> bool:
    """True if the version that is to run has Python code, for which it gets a driver of its own."""
    with catalog.reading() as txn:
        return need_version(txn, row.name, row.version).has_python


# hot standbys


def wants_standby(row: QueryRow, token: str, now: Micros, *, settled: bool) -> bool:
    """True if the host with this token may take the hot standby of a running query: no host has it, or the host that
    runs the query has it and this host is another one. The host that runs the query takes it only if no host has had it
    for a while (`settled`), so that another host gets it if there is one."""
    if row.standby != "hot" or row.wanted != "running" or row.state != "running" or row.lease is None:
        return False
    own, found = row.lease.token == token, row.hot_standby
    if found is None or found.until <= now or found.change != row.change:
        return settled or not own
    return found.token == row.lease.token and not own and found.refused is None


def leaves_to_standby(row: QueryRow, token: str, now: Micros, *, wait_us: int) -> bool:
    """True if a query that is free is left to the host that has its hot standby, for `wait_us` after its lease
    ended."""
    found = row.hot_standby
    if found is None or found.token == token or not found.ready or found.until <= now or found.change != row.change:
        return False
    return row.lease is None or now - row.lease.until < wait_us


def claim_standby(catalog: Catalog, name: str, standby: QueryStandby, *, now: Micros) -> bool:
    """Take the hot standby of a query. False if another host was faster, or the query has changed."""
    with catalog.writing(subject_of(name)) as txn:
        row = txn.state(QUERY, name)
        if row is None or row.change != standby.change or not wants_standby(row, standby.token, now, settled=True):
            return False
        put_query(txn, replace(row, hot_standby=standby, standby_refusal=None))
    return True


def update_standby(
    catalog: Catalog, name: str, token: str, change: Callable[[QueryStandby], QueryStandby]
) -> QueryStandby:
    """Change the hot standby that the host with this token has. Raises Conflict if it has lost it."""
    with catalog.writing(subject_of(name)) as txn:
        row = txn.state(QUERY, name)
        if row is None or row.hot_standby is None or row.hot_standby.token != token:
            raise Conflict(f"the standby of query '{name}' is no longer held by this host")
        changed = change(row.hot_standby)
        if changed != row.hot_standby:
            put_query(txn, replace(row, hot_standby=changed))
    return changed


def begin_in_standby(row: QueryRow, token: str) -> QueryRow | None:
    """The row once the hot standby that the host with this token has takes over; None if the host has lost it. From then on
    no earlier standby takes over: `anabranch.spark.pipelines.checkpoint_places` removes their checkpoints."""
    if row.standby != "hot" or row.hot_standby is None or row.hot_standby.token != token:
        return None
    return replace(row, hot_standby=None)


def without_standby(catalog: Catalog, name: str, epoch: int) -> StoredPipeline | None:
    """The pipeline of a query that this host runs in `epoch`, if no standby that exists now can take it over any more. Raises
    Conflict."""
    with catalog.reading() as txn:
        row = _need_row(txn, name, epoch)
        return None if row.standby == "hot" and row.hot_standby is not None else txn.state(PIPELINE, name)


def release_standby(catalog: Catalog, name: str, token: str) -> None:
    """Give the hot standby back. Does nothing if it was lost."""
    with catalog.writing(subject_of(name)) as txn:
        row = txn.state(QUERY, name)
        if row is not None and row.hot_standby is not None and row.hot_standby.token == token:
            put_query(txn, replace(row, hot_standby=None))


def followed_version(catalog: Catalog, name: str, change: int) -> QueryVersion:
    """What the hot standby of a query runs. Raises Conflict if the query has changed."""
    with catalog.reading() as txn:
        row = txn.state(QUERY, name)
        if row is None or row.change != change:
            raise Conflict(f"query '{name}' was changed or deleted meanwhile")
        return need_version(txn, name, row.version)


def _need_row(txn: Reading, name: str, epoch: int) -> QueryRow:
    row = txn.state(QUERY, name)
    if row is None or row.epoch != epoch or row.lease is None:
        raise Conflict(f"query '{name}' is no longer held by this host: another one has taken it")
    return row


def _lease(row: QueryRow, until: Micros) -> QueryLease:
    assert row.lease is not None
    return replace(row.lease, until=until)


def _state_after_release(row: QueryRow) -> QueryState:
    if row.state == "failed":
        return "failed"
    return "waiting" if row.wanted == "running" else "stopped"
