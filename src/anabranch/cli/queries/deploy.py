"""Deploys a query."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from anabranch.cli.confirm import YES_OPTION
from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.queries.info import NAME_ARGUMENT, print_change
from anabranch.cli.ranges import time_kind
from anabranch.cli.statement_options import (
    REPLACE_OPTION,
    SIGNATURE_OPTION,
    START_BY_OPTION,
    START_FROM_OPTION,
    QueryFileOptions,
    StatementFileOptions,
    confirm_replace,
    parse_starts,
    read_signature,
)
from anabranch.errors import MissingExtra

if TYPE_CHECKING:
    from anabranch.catalog.state.query import StandbyKind
    from anabranch.store import Store


def deploy(
    name: str = NAME_ARGUMENT,
    *,
    statements: StatementFileOptions,
    trigger: str = option("--trigger", "DURATION", "Time between micro-batches; 0s: no pause.", default="1s"),
    start: bool = flag("--start/--no-start", "Whether to start it.", default=True),
    standby: str | None = option(
        "--standby",
        "warm|hot",
        "What takes over when a driver or host ends: a started driver (warm), or one that already runs the query "
        "(hot). Default: unchanged; warm for a new query.",
    ),
    group: str | None = option(
        "--group",
        "GROUP",
        "Queries of different groups never share a driver. Default: unchanged; 'default' for a new query.",
    ),
    cpus: float | None = option(
        "--cpus", "N", "Processors that a host reserves for it. Default: unchanged; 0.1 for a new query."
    ),
    memory: str | None = option(
        "--memory",
        "SIZE",
        "Memory that a host reserves for it, in addition to its driver's. Default: unchanged; 150MB for a new query.",
    ),
    files: QueryFileOptions,
    signature: Path | None = SIGNATURE_OPTION,
    start_from: list[str] | None = START_FROM_OPTION,
    by: str = START_BY_OPTION,
    replace: bool = REPLACE_OPTION,
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Deploy a file of CREATE STREAM statements, or a template, as a query, or as a new version of it. A host runs it
    within seconds.

    A changed file becomes a new version; `rollback` returns to an older one. If the statements mean the same as before,
    it continues where it was. Otherwise --from says where the new version begins, without earlier state; its results
    follow the earlier ones, or with --replace replace them.

    A host takes a query only if it has the processors and the memory that it needs; `queries show` says what is missing.

    With --dialect the file is in the SQL of another system, as in `anabranch query translate`; the version has the translation.

    Wheels, modules and resources are a part of the version: they are kept with it, and a rollback restores them too.

    Examples:

      anabranch queries deploy means means.sql
      anabranch queries deploy means means.sql --standby hot
      anabranch queries deploy job job.sql --dialect flink
      anabranch queries deploy means means.sql --group billing --cpus 0.5 --memory 1GB
      anabranch queries deploy hot --template threshold_alert --param source=iot/sensors --param target=iot/hot --param key=device --param time=at --param value=celsius --param above=30
      anabranch queries deploy scores scores.sql --wheel scoring-1.0-py3-none-any.whl --resource model.json
      anabranch queries deploy means means.sql --param size='1 minute' --from -1d --replace --yes
    """
    with open_store() as opened:
        text, parameters, contents = statements.text(opened), statements.parameters, files.read()
        _check(opened, name, text, parameters, contents or {}, restarts=start_from is not None)
        confirm_replace("query", name, start_from, replace=replace, yes=yes)
        info = opened.queries.deploy(
            name,
            text,
            parameters=parameters,
            trigger=trigger,
            start_from=parse_starts(opened, start_from),
            by=time_kind(by),
            replace_results=replace,
            start=start,
            standby=cast("StandbyKind | None", standby),  # checked there
            group=group,
            cpus=cpus,
            memory=memory,
            files=contents,
            signature=read_signature(signature),
        )
    print_change(info, as_json)


def _check(
    store: Store, name: str, text: str, parameters: Mapping[str, str], files: Mapping[str, bytes], *, restarts: bool
) -> None:
    """Refuse at once what a host would refuse without asking Spark, where the extra for that is installed."""
    from anabranch.remote.address import is_broker

    try:
        from anabranch.spark.pipelines.plan import functions_of, plan
    except MissingExtra:
        return
    from anabranch.deployments.files import check_files
    from anabranch.spark.pipelines import record
    from anabranch.spark.pipelines.declared_functions.declared import check_code

    steps = plan(text, parameters, check_files(files))
    check_code(functions_of(steps), files)
    row = None if is_broker(store.url) else record.get(store.catalog, name)
    if row is not None and row.prepared and not restarts:
        record.refuse_changed(row, [step.output for step in steps], deployed=True)
