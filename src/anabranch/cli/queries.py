"""`anabranch queries`: SQL over streams that is deployed, and run by hosts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.confirm import YesOption, confirm
from anabranch.cli.options import JsonOption, OutputOption, StoreOption, new_app, open_store, store_path
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, put_json, put_line, strong
from anabranch.cli.ranges import ByOption, time_kind
from anabranch.cli.read import (
    ColumnsOption,
    EndOption,
    FollowOption,
    FormatOption,
    LimitOption,
    MetaOption,
    StartOption,
    output_format,
    print_events,
    reader_options,
)
from anabranch.cli.render import json_rows
from anabranch.core.pairs import parse_pairs
from anabranch.core.redact import shown_address
from anabranch.errors import EventNotFound, InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from anabranch.catalog.state.query_question import UpgradePlan
    from anabranch.deployments.info import QueryInfo
    from anabranch.store import Store

app = new_app(
    "Deploy pipelines as queries that hosts keep running. (`query` asks once; `pipeline run` runs in this terminal.)"
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The query's name.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE.sql", help="The statements, as for a pipeline.")]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="NAME=VALUE", help="A parameter that the file declares; may be given several times."
    ),
]
_From = Annotated[
    list[str] | None,
    typer.Option(
        "--from", metavar="PLACE", help="Start over from here: head, tail, a time, -15m, or a cut (one per source)."
    ),
]
_By = Annotated[str, typer.Option("--by", metavar="append|event", help="The kind of time of --from.")]
_Replace = Annotated[bool, typer.Option("--replace", help="With --from: drop the earlier results.")]


@app.command()
def serve(
    driver_per_query: Annotated[
        bool, typer.Option("--driver-per-query", help="A Spark session for each query, instead of one for all.")
    ] = False,
    spares: Annotated[
        int, typer.Option("--spares", metavar="N", min=0, help="Drivers that are started and warmed ahead.")
    ] = 1,
    lease: Annotated[
        str,
        typer.Option(
            "--lease", metavar="DURATION", help="After this time another host takes the queries of a dead one."
        ),
    ] = "10s",
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be given several times."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Run the deployed queries of a store until Ctrl-C.

    A host takes the queries that no other host has, runs them in a driver (a process with a Spark session), and
    restarts what fails. Several hosts may serve one store: when one is killed, another takes its queries after the time
    of --lease. SIGTERM and Ctrl-C let the micro-batches in progress finish and give the queries back at once.

    Examples:

      anabranch queries serve
      anabranch queries serve --driver-per-query --conf spark.driver.memory=2g
    """
    from anabranch.model.amounts import to_duration

    with open_store(store) as opened:
        from anabranch.cli.interrupts import interrupts
        from anabranch.spark.queries.host import QueryHost
        from anabranch.spark.session.java import ensure_java

        ensure_java()
        host = QueryHost(
            opened,
            driver_per_query=driver_per_query,
            spares=spares,
            conf=parse_pairs(conf, "a setting"),
            lease_us=to_duration(lease),
        )
        _log_to_stderr()
        print_note(f"serving the queries of {shown_address(store_path(store))}; Ctrl-C ends it")
        with interrupts("stopping after the micro-batches in progress; a second signal ends it at once") as interrupted:
            host.run(interrupted.is_set)


@app.command()
def deploy(
    name: NameArgument,
    file: FileArgument,
    param: ParamOption = None,
    trigger: Annotated[
        str, typer.Option("--trigger", metavar="DURATION", help="Time between micro-batches; 0s: as fast as it can.")
    ] = "1s",
    start: Annotated[bool, typer.Option("--start/--no-start", help="Whether it is to run.")] = True,
    start_from: _From = None,
    by: _By = "append",
    replace: _Replace = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Deploy a file of CREATE STREAM statements as a query, or as a new version of it. A host runs it within seconds.

    A changed file becomes a new version; `rollback` returns to an older one. If the statements mean the same as before,
    it goes on where it was. Otherwise --from says where the new version begins, without earlier state; its results
    follow the earlier ones, or with --replace take their place.

    Examples:

      anabranch queries deploy means means.sql
      anabranch queries deploy means means.sql --param size='1 minute' --from -1d --replace --yes
    """
    with open_store(store) as opened:
        text, parameters = _read(file), parse_pairs(param, "a parameter")
        _check(opened, name, text, parameters, restarts=start_from is not None)
        if replace and start_from:
            confirm(f"Drop the earlier results of query '{name}'?", yes=yes)
        info = opened.queries.deploy(
            name,
            text,
            parameters=parameters,
            trigger=trigger,
            start_from=_places(opened, start_from),
            by=time_kind(by),
            replace_results=replace,
            start=start,
        )
    _print_change(info, as_json)


@app.command()
def upgrade(
    name: NameArgument,
    file: FileArgument,
    param: ParamOption = None,
    trigger: Annotated[
        str | None, typer.Option("--trigger", metavar="DURATION", help="Time between micro-batches; default: as it is.")
    ] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Say what it would do, and do nothing.")] = False,
    restart_from: Annotated[
        list[str] | None,
        typer.Option(
            "--restart-from",
            metavar="PLACE",
            help="Where statements begin that lose their state: head, tail, a time, -15m, or a cut (one per source).",
        ),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="append|event", help="The kind of time of --restart-from.")
    ] = "append",
    replace: Annotated[
        bool, typer.Option("--replace", help="With --restart-from: drop the earlier results of those statements.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Deploy a changed file as a new version, and keep the state of every statement whose change allows it.

    --plan says for each statement whether it keeps its state, restarts or is refused, and why. What restarts needs
    --restart-from. Without --param the parameters stay as they are.

    Examples:

      anabranch queries upgrade means means.sql --plan
      anabranch queries upgrade means means.sql --restart-from -1d --replace --yes
    """
    with open_store(store) as opened:
        text, parameters = _read(file), parse_pairs(param, "a parameter") if param else None
        found = _plan(opened, name, text, parameters)
        if plan_only:
            _print_plan(found, as_json)
            return
        from anabranch.deployments.upgrades import check_upgrade

        check_upgrade(found, places=bool(restart_from))
        if replace and restart_from:
            confirm(f"Drop the earlier results in {', '.join(found.restarts) or 'no stream'}?", yes=yes)
        info = opened.queries.upgrade(
            name,
            text,
            parameters=parameters,
            trigger=trigger,
            restart_from=_places(opened, restart_from),
            by=time_kind(by),
            replace_results=replace,
        )
    _print_change(info, as_json)


@app.command("list")
def list_queries(as_json: JsonOption = False, store: StoreOption = None) -> None:
    """List the deployed queries, with their state.

    Examples:

      anabranch queries list
      anabranch queries list --json | jq -r '.[] | select(.state == "failed") | .name'
    """
    with open_store(store) as opened:
        found = opened.queries.list()
    if as_json:
        print_json([_json(info) for info in found])
        return
    print_columns(
        ("QUERY", "STATE", "VERSION", "HOST", "ROWS/S", "LAG", "RESULTS"),
        [
            (
                info.name,
                _state(info),
                info.version,
                info.host or "-",
                round(sum(each.get("rows_per_s", 0) for each in info.progress)),
                sum(each.get("lag", 0) for each in info.progress),
                ", ".join(info.results),
            )
            for info in found
        ],
    )


@app.command()
def show(name: NameArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Show a query: its state, what it reads and writes and how far it is, and its statements.

    Example:

      anabranch queries show means
    """
    with open_store(store) as opened:
        info = opened.queries.get(name)
        version = next((each for each in opened.queries.versions(name) if each.number == info.version), None)
    if as_json:
        print_json({**_json(info), "text": None if version is None else version.text})
        return
    put_line(info.name, bold=True)
    for label, value in {
        "state": _state(info),
        "version": info.version,
        "host": info.host or "-",
        "changed": iso_time(info.changed_at),
        "failures": info.restarts,
        **({} if info.error is None else {"error": " ".join(info.error.split())}),
    }.items():
        put_line(f"  {label:<8} {value}")
    put_line()
    print_columns(
        ("RESULT", "BATCH", "READ", "LAG", "BEHIND", "ROWS/S", "WRITTEN", "LATE", "STATE ROWS", "TOOK", "WATERMARK"),
        [
            (
                *(each.get(field, 0) for field in ("target", "batch", "read", "lag")),
                f"{each.get('lag_s', 0):.1f} s",
                round(each.get("rows_per_s", 0)),
                *(each.get(field, 0) for field in ("written", "late", "state_rows")),
                f"{each.get('batch_ms', 0):,} ms",
                iso_time(each.get("watermark_us")),
            )
            for each in info.progress
        ],
        indent="  ",
    )
    if version is not None:
        put_line()
        for label, text in version.parameters.items():
            put_line(f"  {label} = {text}")
        for line in version.text.strip().splitlines():
            put_line(f"  {line.expandtabs()}".rstrip())


@app.command()
def top(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="These queries; default: all.", show_default=False)
    ] = None,
    operators: Annotated[
        bool, typer.Option("--operators", help="A row for each stateful operator, instead of for each statement.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print once, and end. So it does without a terminal.")] = False,
    interval: Annotated[str, typer.Option("--interval", metavar="DURATION", help="Time between two looks.")] = "1s",
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Show how the deployed queries do, until Ctrl-C: rates, lag, watermark, state, late events and micro-batches.

    LAG counts the events that are still to be read, and BEHIND is the age of the oldest. LATE counts events of this run
    that came too late for their windows.

    Examples:

      anabranch queries top
      anabranch queries top means --operators --once
      anabranch queries top --json | jq '.[] | select(.lag_s > 60) | .query'
    """
    from anabranch.cli import queries_top
    from anabranch.model.amounts import to_duration

    interval_s = to_duration(interval) / 1e6
    header = queries_top.OPERATORS_HEADER if operators else queries_top.HEADER
    rows_of = queries_top.operator_rows if operators else queries_top.rows
    with open_store(store) as opened:

        def look() -> list[QueryInfo]:
            return [opened.queries.get(name) for name in names] if names else list(opened.queries.list())

        if as_json:
            print_json([{"query": info.name, **_progress_json(each)} for info in look() for each in info.progress])
        elif once or not sys.stdout.isatty():
            print_columns(header, list(rows_of(look())))
        else:
            from anabranch.cli.interrupts import interrupts

            with interrupts() as interrupted:
                queries_top.watch(lambda: (header, list(rows_of(look()))), interrupted.wait, interval_s)


@app.command()
def start(name: NameArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Have a query run that was stopped or has failed, from where it was.

    Example:

      anabranch queries start means
    """
    with open_store(store) as opened:
        info = opened.queries.start(name)
    _print_change(info, as_json)


@app.command()
def stop(
    name: NameArgument,
    now: Annotated[
        bool, typer.Option("--now", help="Don't wait for the micro-batch in progress; the next run repeats it.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Have a query stop after the micro-batch in progress. What it published stays.

    Examples:

      anabranch queries stop means
      anabranch queries stop means --now
    """
    with open_store(store) as opened:
        info = opened.queries.stop(name, now=now)
    _print_change(info, as_json)


@app.command()
def logs(
    name: NameArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on and wait for more, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Print the log of a query: its starts, ends and failures.

    Example:

      anabranch queries logs means -f
    """
    from anabranch.deployments.record import log_stream
    from anabranch.errors import StreamNotFound

    with open_store(store) as opened:
        opened.queries.get(name)
        try:
            reader = opened.reader(log_stream(name), follow=follow)
        except StreamNotFound:  # no host has had it yet
            return
        with reader:
            for event in reader:
                line = event.body
                at = iso_time(round(line["at"].timestamp() * 1_000_000))
                if as_json:
                    put_json(_line_json({**line, "at": at}), flush=True)
                else:
                    put_line(f"{at}  {line['level']:<7}  {line['message']}", flush=True)


@app.command()
def results(
    name: NameArgument,
    result: Annotated[
        str | None,
        typer.Argument(metavar="[RESULT]", help="Of several: the name of the stream, or 1, 2 …", show_default=False),
    ] = None,
    start: StartOption = "head",
    end: EndOption = None,
    by: ByOption = "append",
    follow: FollowOption = False,
    limit: LimitOption = None,
    columns: ColumnsOption = None,
    meta: MetaOption = False,
    form: FormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Print the results of a query, as `read` prints a stream. With --follow it goes on from the past into the future, and
    waits for the results of a query that has just been deployed.

    Examples:

      anabranch queries results means
      anabranch queries results means --from -1h --follow
      anabranch queries results means iot/means --format csv --output means.csv
    """
    kind = output_format(form, as_json=as_json, output=output, follow=follow, limit=limit)
    with open_store(store) as opened:
        options = reader_options(opened, start, end, by, follow=follow, limit=limit, columns=columns)
        with opened.queries.results(name, result, **options) as reader:
            print_events(reader, kind, output, limit=limit, meta=meta, follow=follow)


@app.command()
def state(
    name: NameArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The routing key of the results, such as a device.")],
    result: Annotated[
        str | None,
        typer.Argument(metavar="[RESULT]", help="Of several: the name of the stream, or 1, 2 …", show_default=False),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Print the last result with a key, of all that were published by now, as one line of JSON.

    Examples:

      anabranch queries state means sensor-7
    """
    with open_store(store) as opened:
        found = opened.queries.state(name, key, result)
        if found is None:
            raise EventNotFound(f"query '{name}' has no result with the key '{key}'")
        put_json(json_rows(found.row)[0])


@app.command()
def versions(name: NameArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """List the versions of a query. The one that is deployed is marked.

    Example:

      anabranch queries versions means
    """
    with open_store(store) as opened:
        current, found = opened.queries.get(name).version, opened.queries.versions(name)
    if as_json:
        print_json(
            [
                {
                    "number": each.number,
                    "current": each.number == current,
                    "digest": each.digest,
                    "created_at": iso_time(each.created_at),
                    "parameters": dict(each.parameters),
                    "text": each.text,
                }
                for each in found
            ]
        )
        return
    print_columns(
        ("VERSION", "", "DEPLOYED", "DIGEST", "PARAMETERS"),
        [
            (
                each.number,
                strong("current") if each.number == current else "",
                iso_time(each.created_at),
                each.digest[:12],
                ", ".join(f"{key}={value}" for key, value in each.parameters.items()),
            )
            for each in found
        ],
    )


@app.command()
def rollback(
    name: NameArgument,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="Default: the one before.", show_default=False)
    ] = None,
    start_from: _From = None,
    by: _By = "append",
    replace: _Replace = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Return to an older version of a query. --from is needed as for `deploy`.

    Examples:

      anabranch queries rollback means
      anabranch queries rollback means 3 --from head --replace --yes
    """
    with open_store(store) as opened:
        if replace and start_from:
            confirm(f"Drop the earlier results of query '{name}'?", yes=yes)
        info = opened.queries.rollback(
            name, version, start_from=_places(opened, start_from), by=time_kind(by), replace_results=replace
        )
    _print_change(info, as_json)


@app.command()
def delete(
    name: NameArgument,
    drop_results: Annotated[
        bool, typer.Option("--drop-results", help="Delete its result streams too, if it made them.")
    ] = False,
    yes: YesOption = False,
    store: StoreOption = None,
) -> None:
    """Delete a query with its versions, its checkpoints, its log and the streams of its late events. Its results stay,
    unless --drop-results is given. If it ever ran, a host does this; until then it is listed.

    Example:

      anabranch queries delete means
    """
    with open_store(store) as opened:
        results = opened.queries.get(name).results if drop_results else ()
        confirm(f"Delete query '{name}'{' with ' * bool(results)}{', '.join(results)}?", yes=yes)
        opened.queries.delete(name, drop_results=drop_results)
        left = any(info.name == name for info in opened.queries.list())
    print_note(f"query '{name}' {'is being deleted by its host' if left else 'is deleted'}")


@app.command()
def validate(
    file: FileArgument, param: ParamOption = None, as_json: JsonOption = False, store: StoreOption = None
) -> None:
    """Check a file with Spark, without running it: missing streams, unknown columns, what can't run on streams. Prints what
    it reads, the columns of its results, and its parameters. Through a broker, a host does it.

    Example:

      anabranch queries validate means.sql --param size='1 minute'
    """
    from dataclasses import asdict

    from anabranch.remote.address import is_broker

    with open_store(store) as opened:
        text, parameters = _read(file), parse_pairs(param, "a parameter")
        if is_broker(opened.url):
            found = opened.queries.validate(text, parameters=parameters)
        else:
            from anabranch.spark.queries.validate import validate as check

            found = check(opened, text, parameters=parameters)
    if as_json:
        print_json(asdict(found))
        return
    for each in found.parameters:
        print_note(f"parameter {each.name}: {each.type}{'' if each.default is None else f', default {each.default!r}'}")
    print_columns(
        ("RESULT", "COLUMN", "TYPE", "READS"),
        [
            (each.target, column, kind, "" if number else ", ".join((*each.sources, *each.tables)))
            for each in found.statements
            for number, (column, kind) in enumerate(each.columns.items())
        ],
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArgument(f"the statements can't be read: {exc}") from exc


def _check(store: Store, name: str, text: str, parameters: Mapping[str, str], *, restarts: bool) -> None:
    """Refuse at once what a host would refuse without asking Spark, where the extra for that is installed."""
    from anabranch.remote.address import is_broker

    try:
        from anabranch.spark.pipelines.plan import plan
    except MissingExtra:
        return
    from anabranch.spark.pipelines import record

    outputs = [step.output for step in plan(text, parameters)]
    row = None if is_broker(store.url) else record.get(store.catalog, name)
    if row is not None and row.prepared and not restarts:
        record.refuse_changed(row, outputs)


def _plan(store: Store, name: str, text: str, parameters: Mapping[str, str] | None) -> UpgradePlan:
    """What an upgrade would do; through a broker, a host says it."""
    from anabranch.remote.address import is_broker

    if is_broker(store.url):
        return store.queries.plan(name, text, parameters=parameters)
    from anabranch.spark.pipelines import record
    from anabranch.spark.pipelines.plan import plan
    from anabranch.spark.queries.upgrade import plan_upgrade

    versions = store.queries.versions(name)
    if parameters is None:
        current = store.queries.get(name).version
        parameters = next(each.parameters for each in versions if each.number == current)
    return plan_upgrade(record.get(store.catalog, name), versions, plan(text, parameters))


def _print_plan(found: UpgradePlan, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json(asdict(found))
        return
    print_columns(
        ("RESULT", "LINE", "VERDICT", "REASON"),
        [(each.target, each.line, each.verdict, each.reason) for each in found.statements],
    )


def _places(store: Store, texts: Sequence[str] | None) -> list[Any] | None:
    from anabranch.cli.stream_places import parse_place

    return None if not texts else [parse_place(text, now=store.runtime.clock.now()) for text in texts]


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("anabranch")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _print_change(info: QueryInfo, as_json: bool) -> None:
    if as_json:
        print_json(_json(info))
    else:
        print_note(f"query '{info.name}': version {info.version} is {_state(info)}")


def _state(info: QueryInfo) -> str:
    if info.wanted == "deleted":
        return "being deleted"
    if info.state == "waiting":
        return "waiting for a host" if info.host is None else "waiting to be started again"
    return info.state


def _json(info: QueryInfo) -> dict[str, Any]:
    from dataclasses import asdict

    times = {name: iso_time(getattr(info, name)) for name in ("created_at", "changed_at", "retry_at")}
    return asdict(info) | times


def _progress_json(progress: Mapping[str, Any]) -> dict[str, Any]:
    watermark = iso_time(progress.get("watermark_us"))
    return {name: value for name, value in progress.items() if name != "watermark_us"} | {"watermark": watermark}


def _line_json(line: Mapping[str, Any]) -> str:
    import json

    return json.dumps(dict(line), ensure_ascii=False)
