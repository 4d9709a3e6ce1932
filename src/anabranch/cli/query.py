"""`anabranch query`: SQL over streams."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from anabranch import limits
from anabranch.cli.declare import argument, flag, option
from anabranch.cli.formats import Format
from anabranch.cli.input_files import read_sql
from anabranch.cli.interrupts import deferred
from anabranch.cli.options import OutputOptions, open_store, store_path
from anabranch.cli.translate import DIALECT_OPTION
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import to_duration, to_size
from anabranch.remote.address import is_broker


def query(
    sql: str | None = argument("[SQL]", "The query; - is stdin.", default=None),
    file: Path | None = option("--file", "FILE", "Take the query from a file."),
    allow_files: bool = flag("--allow-files", "Let the query use files of this machine and DuckDB's extensions."),
    timeout: str | None = option("--timeout", "DURATION", "Stop the query after this time, such as 30s."),
    memory: str | None = option("--memory", "SIZE", "Memory that it may use, such as 2GiB; more spills to disk."),
    dialect: str | None = DIALECT_OPTION,
    *,
    output: OutputOptions,
) -> None:
    """Query streams in SQL.

    The dialect is DuckDB's; a query sees all events, from head to tail as of now. A stream is a table, written
    iot.sensors or "iot/sensors". Only the columns that the query needs are read. The table also has _segment, _offset
    and _appended if the query names one of them. A column called at must be quoted: "at". SHOW TABLES lists the streams.

    With --dialect the SQL is that of another system; `anabranch query translate` prints what it becomes.

    Functions of WebAssembly modules are called as wasm.score(celsius); see `anabranch modules`.

    It reads all streams of the store, and can't change them. Nor can it use files, the network, the environment, extensions
    or settings of DuckDB, as COPY, ATTACH, read_csv, getenv, INSTALL and SET would, unless --allow-files allows it all of
    that, as the user who runs it. This holds wherever the store is.

    It runs in this process, without a limit of time, and with four fifths of the machine's memory before it spills to the
    temporary folder: --timeout and --memory set less, and Ctrl-C ends it. Some functions count no memory, such as repeat.

    A broker (--store anabranch://HOST) runs the query itself, in a process of its own that has 1 GiB of memory and 5
    minutes, over the streams that the caller may read, and sends only the result. Have it run SQL that you do not trust.

    Examples:

      anabranch query 'SELECT device, max(celsius) FROM iot.sensors GROUP BY 1'
      anabranch query 'SELECT count(*) FROM "iot/sensors"' --json
      anabranch query --file report.sql --output report.parquet
      anabranch query --dialect trino 'SELECT device, try_cast(note AS bigint) AS n FROM iot.sensors'
      anabranch query translate --from trino 'SELECT device, try_cast(note AS bigint) AS n FROM iot.sensors'
      anabranch query --allow-files "SELECT * FROM iot.sensors JOIN 'devices.csv' USING (device)"
    """
    from anabranch.cli.render.result import render

    kind = output.kind
    bytes_max = limits.SQL_FILE_BYTES_MAX if allow_files else limits.SQL_BYTES_MAX
    text = read_sql(sql, file, what="the query", bytes_max=bytes_max)
    if is_broker(store_path()):
        local_only = {"--allow-files": allow_files, "--timeout": timeout, "--memory": memory}
        _ask_broker(text, dialect, kind, output.file, local_only=local_only)
        return
    with deferred():
        from anabranch.query import Query, QueryLimits
    with open_store() as opened:
        query_limits = QueryLimits(
            memory_bytes=None if memory is None else to_size(memory),
            seconds=None if timeout is None else to_duration(timeout) / 1_000_000,
        )
        with Query(opened, allow_files=allow_files, limits=query_limits) as engine:
            result = engine.run(text, dialect=dialect)
            if result is not None:
                render(result, result.schema, kind, output.file)


def _ask_broker(
    text: str, dialect: str | None, kind: Format, output: Path | None, *, local_only: Mapping[str, object]
) -> None:
    """Run the query at the broker, within the broker's limits. Raises InvalidArgument if one of the `local_only` options
    has a value."""
    from anabranch.cli.render.result import render
    from anabranch.remote.query import query as ask
    from anabranch.remote.store import RemoteStore

    for name, value in local_only.items():
        if value:
            raise InvalidArgument(f"{name} can't be used through a broker, which runs queries within its own limits")
    with open_store() as opened:
        assert isinstance(opened, RemoteStore)
        with closing(ask(opened, text, dialect)) as result:
            if result.schema.names:
                render(result, result.schema, kind, output)
            else:  # a statement without a result
                list(result)
