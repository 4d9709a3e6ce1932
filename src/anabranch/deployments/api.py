"""The deployed queries of a store, as methods of the store."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.catalog.state.pipeline import PIPELINE
from anabranch.catalog.state.query import QUERY, QueryRestart, QueryRow, StandbyKind
from anabranch.catalog.state.query_question import CommittedState, StateWanted, UpgradePlan, ValidatedQuery
from anabranch.catalog.state.query_version import QueryVersion
from anabranch.core.display import Displayed
from anabranch.deployments.files import check_files, contents_of, put_contents
from anabranch.deployments.info import QueryInfo, info_of
from anabranch.deployments.questions import ask
from anabranch.deployments.record import (
    all_queries,
    check_query_name,
    drop_query,
    need_query,
    need_version,
    next_number,
    put_query,
    versions_of,
)
from anabranch.deployments.replay import add_replay, refuse_replayed, replay_name, replays_of
from anabranch.deployments.results import open_results, result_stream
from anabranch.deployments.signatures import check_signed
from anabranch.deployments.versions import VersionContent, check_parameters, check_statements, check_values, put_new
from anabranch.deployments.wanted_state import NeedsChange, refuse_deleted, restart_at, wanted_row, with_standby
from anabranch.errors import InvalidArgument, NoResultsYet
from anabranch.model.amounts import to_duration
from anabranch.model.cut import HEAD
from anabranch.model.event import Event
from anabranch.model.ids import Micros
from anabranch.model.rate import Rate
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place
from anabranch.reading.reader import Reader
from anabranch.streams.change import Changes
from anabranch.streams.requests import Result

TRIGGER_US = 1_000_000


class DeployedQueries(Displayed):
    """The queries of a store that hosts (`anabranch queries serve`) run. A deployed query is SQL as for a pipeline
    (`anabranch.spark.pipelines.run`), kept in versions. Each method is one transaction; hosts act on it within a second.
    """

    def __init__(
        self, changes: Changes, open_reader: Callable[..., Reader], latest: Callable[..., Event | None]
    ) -> None:
        """`open_reader` is `Store.reader`, and `latest` is `Store.latest`."""
        self._latest = latest
        self._changes = changes
        self._open_reader = open_reader
        self._catalog = changes.catalog
        self._runtime = changes.runtime

    def deploy(
        self,
        name: str,
        text: str,
        *,
        parameters: Mapping[str, str] | None = None,
        trigger: timedelta | int | str = TRIGGER_US,
        start_from: Place | Sequence[Place] | None = None,
        by: TimeKind = "append",
        replace_results: bool = False,
        start: bool = True,
        standby: StandbyKind | None = None,
        group: str | None = None,
        cpus: float | None = None,
        memory: int | str | None = None,
        files: Mapping[str, bytes] | None = None,
        signature: str | None = None,
        request: str | None = None,
    ) -> QueryInfo:
        """Deploy a query, or a new version of it, and have it run, or with `start=False` leave it stopped. If nothing
        differs from the current version, no new one is made, and a query that runs it is left alone.

        `text` holds CREATE STREAM statements. `parameters` are values, as text, of the parameters that it declares.
        `trigger` is the time between the micro-batches of statements without one of their own: a duration, or µs.

        A first run begins where the statements say, else at the head. A later version whose statements mean the same goes
        on from the checkpoints. Any other needs `start_from`: `head`, `tail`, a time (append or event time, see `by`), a
        cut, or one for each source. It then begins there without earlier state, and its results follow the earlier ones,
        or with `replace_results` take their place.

        `standby` says what waits to take over when the query's driver or host ends: `warm`, a started driver without the
        query's state (the default), or `hot`, one that runs the query too and publishes nothing. None leaves it as it is.

        Queries of one `group` (at first `default`) share the driver of a host; those of different groups never do. A host
        takes a query only if it has room: `cpus` processors (at first 0.1) and `memory` (bytes or `500MB`; at first 150
        MB), and 1.4 GB for a driver where it has none for the group. Until then the query waits, and `QueryInfo.refused`
        says why. None leaves each as it is.

        `files` are what the statements use, by name: pure wheels (`….whl`), whose functions they call, WebAssembly modules
        (`….wasm`) and resources that those functions read. They are a part of the version, and are checked but not run
        here. `signature` is one of the statements, parameters and files; with trusted keys in the store
        (`anabranch.deployments.signatures`) it has to be there, and by one of these.

        The statements are parsed by the host: a query that is not valid ends in the state `failed`. Raises InvalidSql for
        parameters that are not those of `text`; InvalidArgument, TooLarge; PermissionDenied without a signature that is
        needed; Conflict while a query of this name is being deleted.
        """
        check_query_name(name)
        check_statements(text, f"the text of query '{name}'")
        given = VersionContent.checked(text, parameters or {}, to_duration(trigger), files or {}, signature)
        restart = restart_at(start_from, by, replace_results)
        if standby not in (None, "warm", "hot"):
            raise InvalidArgument(f"expected standby as 'warm' or 'hot', got {standby!r:.100}")
        asked = NeedsChange(group, cpus, memory)
        check_parameters(text, given.parameters or {})
        digest = given.digest

        def change(txn: Writing, now: Micros) -> Result:
            row = txn.state(QUERY, name)
            if row is not None:
                refuse_deleted(row)
                refuse_replayed(txn, row)
            current = None if row is None else need_version(txn, name, row.version)
            if current is None or current.digest != digest:
                number = next_number(txn, name)
                put_new(txn, given.version(name, number, now), files)
            else:
                number = current.number
                check_signed(txn, current)
            if row is None:
                row = QueryRow(name, now, now, "stopped", number, 0, state="stopped")
            row = asked.applied(with_standby(row, standby))
            put_query(txn, wanted_row(row, now, version=number, restart=restart, start=start))
            return {}

        what = f"deploy query {name} {digest} {restart} start={start}" + ("" if standby is None else f" {standby}")
        what += "" if asked == NeedsChange() else f" {group} {cpus} {memory}"
        self._changes.apply(what, request, change)
        return self.get(name)

    def upgrade(
        self,
        name: str,
        text: str,
        *,
        parameters: Mapping[str, str] | None = None,
        trigger: timedelta | int | str | None = None,
        restart_from: Place | Sequence[Place] | None = None,
        by: TimeKind = "append",
        replace_results: bool = False,
        files: Mapping[str, bytes] | None = None,
        signature: str | None = None,
        request: str | None = None,
    ) -> QueryInfo:
        """Deploy a new version of a query, of which every statement that can keep its state does: see `plan`.

        Those that can't start over at `restart_from` (a place, or one for each source; `by`: the kind of time), and with
        `replace_results` their results take the place of the earlier ones. Without it such an upgrade ends in the state
        `failed`, having changed nothing, and `rollback` goes on with the version before. `parameters`, `trigger` and `files`
        are by default those of the present version; `files` take the place of all present files. `signature` as in
        `deploy`. Whether the query runs stays as it is, except that a failed one is started. Raises QueryNotFound,
        InvalidSql for parameters that are not those of the new text, InvalidArgument, TooLarge, PermissionDenied, Conflict.
        """
        check_statements(text, f"the text of query '{name}'")
        given = VersionContent.checked(text, parameters, trigger, files, signature)
        restart = restart_at(restart_from, by, replace_results) or QueryRestart((), by)
        restart = replace(restart, upgrade=True)

        def changed(txn: Writing, row: QueryRow, now: Micros) -> QueryRow:
            refuse_replayed(txn, row)
            current = need_version(txn, name, row.version)
            number = next_number(txn, name)
            made = given.version(name, number, now, current)
            if made.digest == current.digest:
                return row
            put_new(txn, made, files)
            return wanted_row(row, now, version=number, restart=restart, start=row.wanted == "running")

        return self._change(f"upgrade query {name} {given.digest} {restart}", request, name, changed)

    def replay(
        self,
        name: str,
        text: str | None = None,
        *,
        start_from: Place | Sequence[Place] = HEAD,
        by: TimeKind = "append",
        parameters: Mapping[str, str] | None = None,
        trigger: timedelta | int | str | None = None,
        keep_results: bool = True,
        files: Mapping[str, bytes] | None = None,
        signature: str | None = None,
        request: str | None = None,
    ) -> QueryInfo:
        """Recompute the results of a query from `start_from` beside the present ones, and then replace these.

        Returns the replay: a query `<name>-replay-<version>` that hosts run, while the query itself goes on. Once it has
        caught up with its sources, a host swaps both in one transaction: the new results get the names, aliases and
        policies of the earlier ones, which are kept as `<stream>_v<version>`, or without `keep_results` deleted; and the
        query continues from where the replay is, as the new version. Readers that are open go on reading the earlier
        results. Deleting the replay gives it up.

        `text`, `parameters`, `trigger` and `files` are by default those of the present version; `signature`,
        `start_from` and `by` are those of `deploy`. Raises QueryNotFound, Conflict if the query is being replayed
        already, InvalidArgument, TooLarge, PermissionDenied."""
        if text is not None:
            check_statements(text, f"the text of query '{name}'")
        given = VersionContent.checked(text, parameters, trigger, files, signature)
        restart = restart_at(start_from, by, False)

        def change(txn: Writing, now: Micros) -> Result:
            row = need_query(txn, name)
            refuse_deleted(row)
            current = need_version(txn, name, row.version)
            number = next_number(txn, name)
            made = check_query_name(replay_name(name, number))
            version = given.version(made, number, now, current)
            replayed = QueryRow(
                made, now, now, "running", number, 1, restart, replaces=name, keeps=keep_results, needs=row.needs
            )
            check_signed(txn, version)
            if files:
                put_contents(txn, version.files, files)
            add_replay(txn, row, version, replayed)
            return {"replay": made}

        made = self._changes.apply(f"replay query {name} {given.digest} {keep_results} {restart}", request, change)
        return self.get(str(made["replay"]))

    def plan(
        self,
        name: str,
        text: str,
        *,
        parameters: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> UpgradePlan:
        """What `upgrade` to this text would do with each statement, and why; nothing is changed. A host answers: waits for
        it at most `limits.DEPLOYMENT_ANSWER_S`. `parameters` and `files` are by default those of the present version. Raises
        QueryNotFound, InvalidSql with the line, InvalidArgument, StoreUnavailable if no host answers."""
        check_statements(text)
        with self._catalog.reading() as txn:
            row = need_query(txn, name)
            current = need_version(txn, name, row.version)
        values = current.parameters if parameters is None else check_values(parameters)
        listed = current.files if files is None else check_files(files)
        found = ask(self._catalog, self._runtime, "plan", text, values, name=name, files=listed).plan
        assert found is not None
        return found

    def validate(
        self,
        text: str,
        *,
        parameters: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ValidatedQuery:
        """Check a query with Spark, without deploying it: its inputs, outputs and parameters. A host answers, as in
        `plan`. None of the code in its files runs. Raises InvalidSql with the line for whatever would make a run fail
        at once, InvalidArgument, TooLarge, StoreUnavailable if no host answers."""
        check_statements(text)
        values = check_values(parameters)
        listed = check_files(files or {})
        found = ask(self._catalog, self._runtime, "validate", text, values, files=listed).validated
        assert found is not None
        return found

    def rollback(
        self,
        name: str,
        version: int | None = None,
        *,
        start_from: Place | Sequence[Place] | None = None,
        by: TimeKind = "append",
        replace_results: bool = False,
        request: str | None = None,
    ) -> QueryInfo:
        """Return to an older version, by default the one before the current one. Whether it runs stays as it is, except
        that a failed query is started.

        Every statement that can keep its state does, as in `upgrade`; the others start over at `start_from`, and with
        `replace_results` their results take the place of the earlier ones. Without a place such a rollback ends in the
        state `failed`, having changed nothing. Raises QueryNotFound, also for a version that is not kept, Conflict,
        InvalidArgument, PermissionDenied for a version that is not signed as it has to be."""
        restart = replace(restart_at(start_from, by, replace_results) or QueryRestart((), by), upgrade=True)

        def changed(txn: Writing, row: QueryRow, now: Micros) -> QueryRow:
            refuse_replayed(txn, row)
            number = version
            if number is None:
                older = [each.number for each in versions_of(txn, name) if each.number < row.version]
                if not older:
                    raise InvalidArgument(f"query '{name}' has no version before the current one, {row.version}")
                number = older[-1]
            check_signed(txn, need_version(txn, name, number))
            stays = number == row.version and start_from is None
            again = None if stays else restart
            return wanted_row(row, now, version=number, restart=again, start=row.wanted == "running")

        return self._change(f"roll back query {name} to {version} {restart}", request, name, changed)

    def start(self, name: str, *, request: str | None = None) -> QueryInfo:
        """Have a query run, from where it stopped; also one that has failed. One that runs is left alone. Raises
        QueryNotFound, Conflict."""

        def changed(txn: Writing, row: QueryRow, now: Micros) -> QueryRow:
            del txn
            return wanted_row(row, now, version=row.version, restart=row.restart, start=True)

        return self._change(f"start query {name}", request, name, changed)

    def stop(self, name: str, *, now: bool = False, request: str | None = None) -> QueryInfo:
        """Have a query stop once its micro-batch is done; its state is `stopping` until then. With `now` it does not
        wait for that: the next run repeats the micro-batch, and its results are still published once. Raises
        QueryNotFound, Conflict."""
        at_once = now

        def changed(txn: Writing, row: QueryRow, now: Micros) -> QueryRow:
            del txn
            if row.wanted != "stopped":
                held = row.lease is not None and row.lease.until > now and row.state != "waiting"
                state = row.state if row.state == "failed" else "stopping" if held else "stopped"
                row = replace(row, wanted="stopped", state=state, changed_at=now, retry_at=None, stop_now=False)
            return replace(row, stop_now=at_once or row.stop_now)

        return self._change(f"stop query {name}{' now' * at_once}", request, name, changed)

    def _change(
        self, what: str, request: str | None, name: str, changed: Callable[[Writing, QueryRow, Micros], QueryRow]
    ) -> QueryInfo:
        """Store the row that `changed` makes of the query's. Raises QueryNotFound, Conflict if it is being deleted."""

        def change(txn: Writing, now: Micros) -> Result:
            row = need_query(txn, name)
            refuse_deleted(row)
            put_query(txn, changed(txn, row, now))
            return {}

        self._changes.apply(what, request, change)
        return self.get(name)

    def delete(self, name: str, *, drop_results: bool = False, request: str | None = None) -> None:
        """Delete a query with its versions. One that ever ran is stopped and removed by a host, with its checkpoints and
        the streams of its late events; until then it is listed as wanted `deleted`. Its results stay, unless
        `drop_results`: then all streams that it made are deleted, also those of earlier statements and those that a
        replay kept (`QueryInfo.made`). Streams that it did not create stay, and so do those that another query feeds.
        Replays of it are deleted with their results. Raises QueryNotFound."""

        def change(txn: Writing, now: Micros) -> Result:
            row = need_query(txn, name)
            for each in replays_of(txn, name):
                _delete(txn, each, now, drop_results=True)
            _delete(txn, row, now, drop_results=drop_results or row.replaces is not None)
            return {}

        self._changes.apply(f"delete query {name}{' with its results' * drop_results}", request, change)

    def list(self) -> builtins.list[QueryInfo]:
        """All queries, by name."""
        now = self._runtime.clock.now()
        with self._catalog.reading() as txn:
            return [info_of(txn, row, now) for row in all_queries(txn)]

    def get(self, name: str) -> QueryInfo:
        """One query. Raises QueryNotFound."""
        now = self._runtime.clock.now()
        with self._catalog.reading() as txn:
            return info_of(txn, need_query(txn, name), now)

    def versions(self, name: str) -> builtins.list[QueryVersion]:
        """The versions of a query that are kept (the last `limits.DEPLOYMENT_VERSIONS_MAX`), oldest first. Raises
        QueryNotFound."""
        with self._catalog.reading() as txn:
            need_query(txn, name)
            return versions_of(txn, name)

    def file(self, name: str, file: str, version: int | None = None) -> bytes:
        """The content of a file of a version, by default of the present one. Raises QueryNotFound, InvalidArgument if
        the version has no such file, CorruptCatalog."""
        with self._catalog.reading() as txn:
            row = need_query(txn, name)
            found = need_version(txn, name, row.version if version is None else version)
            listed = [each for each in found.files if each.name == file]
            if not listed:
                known = ", ".join(each.name for each in found.files) or "none"
                raise InvalidArgument(
                    f"version {found.number} of query '{name}' has no file '{file:.100}'; it has: {known}"
                )
            return contents_of(txn, listed)[file]

    def results(
        self,
        name: str,
        result: str | None = None,
        *,
        start: Place = HEAD,
        end: Place | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        by: TimeKind = "append",
        batch_rows: int = limits.READ_ROWS_MAX,
        rate: Rate | None = None,
    ) -> Reader:
        """Open a reader of a query's results: of the stream that it feeds. If it feeds several, `result` selects one,
        by its name or by the number of its statement from 1. The other arguments are those of `Store.reader`.

        With `follow` it waits for the results of a query that has none yet, as long as the query is to run. Raises
        QueryNotFound, NoResultsYet, InvalidArgument, and what opening a reader raises."""
        return open_results(
            self.get,
            self._open_reader,
            self._runtime.tasks,
            name,
            result,
            start=start,
            end=end,
            follow=follow,
            columns=columns,
            by=by,
            batch_rows=batch_rows,
            rate=rate,
        )

    def state(self, name: str, key: str, result: str | None = None) -> Event | None:
        """The last result with a routing key, of all that were published when it was called; None if there is none. Of
        results that were published together it is the one with the newest event time. `result`
        as in `results`. Raises QueryNotFound, NoResultsYet, InvalidArgument, and what `Store.latest` raises."""
        info = self.get(name)
        stream = result_stream(info, result)
        if stream is None:
            raise NoResultsYet(info.name, info.state)
        return self._latest(stream, key, by_time=True)

    def committed_state(
        self,
        name: str,
        key: str | None = None,
        result: str | None = None,
        *,
        batch: int | None = None,
        rows_max: int = 100,
    ) -> CommittedState:
        """Rows of Spark's state of a statement, such as windows that are still open: as of its last committed
        micro-batch, or of an earlier `batch` whose state Spark still has. With `key` only rows whose key has a part
        with this text; at most `rows_max` (up to `limits.DEPLOYMENT_STATE_ROWS_MAX`), in no particular order. `result`
        as in `results`.

        A host answers, as in `plan`; it reads the checkpoint, which takes about a second and more where the state is large.
        Raises QueryNotFound, NoResultsYet, InvalidArgument, StoreUnavailable if no host answers."""
        if not 1 <= rows_max <= limits.DEPLOYMENT_STATE_ROWS_MAX:
            raise InvalidArgument(f"rows_max is from 1 to {limits.DEPLOYMENT_STATE_ROWS_MAX:,}, not {rows_max}")
        info = self.get(name)
        target = result_stream(info, result)
        if target is None:
            raise NoResultsYet(info.name, info.state)
        wanted = StateWanted(target, key, batch, rows_max)
        found = ask(self._catalog, self._runtime, "state", name=name, wanted=wanted).state
        assert found is not None
        return found


def _delete(txn: Writing, row: QueryRow, now: Micros, *, drop_results: bool) -> None:
    if row.epoch == 0 and txn.state(PIPELINE, row.name) is None:
        drop_query(txn, row.name)
        return
    drop = drop_results or (row.wanted == "deleted" and row.drop_results)
    put_query(txn, replace(row, wanted="deleted", changed_at=now, retry_at=None, drop_results=drop))
