"""Translates statements of other systems into SQL of DuckDB or of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlglot
from sqlglot import ErrorLevel, exp
from sqlglot.errors import ParseError, UnsupportedError

from anabranch import limits
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidArgument, InvalidName, InvalidSql
from anabranch.model.names import StreamName
from anabranch.query.dialects.calls import IS_TIME, Conversion, NotTranslated
from anabranch.query.dialects.dialect_clauses import SESSION_CALL, declaration, take_out
from anabranch.query.dialects.functions import unsupported
from anabranch.query.dialects.kinds import start_of
from anabranch.query.dialects.parameters import marked, number_parameters, unmarked
from anabranch.query.dialects.parser_warnings import collected_warnings
from anabranch.query.dialects.readers import READ_AS
from anabranch.query.dialects.same_result import rewrite
from anabranch.query.dialects.text import Found, StatementText
from anabranch.query.dialects.windows import UNITS_US, WINDOW_KINDS, DialectWindow, span, spark_name
from anabranch.query.sql_text import quoted

Form = Literal["query", "pipeline"]
DIALECTS: Final = tuple(READ_AS)
_START: Final = frozenset({"window_start", "windowstart"})
_END: Final = frozenset({"window_end", "windowend"})
_EPOCH: Final = "TIMESTAMPTZ '1970-01-01 00:00:00+00'"


@dataclass(frozen=True, slots=True)
class DialectOptions:
    """Defaults for a statement: the `scope` of names without one, and the column of event `time`."""

    scope: str | None = None
    time: str | None = None


def translate(text: str, dialect: str, form: Form | None = None, options: DialectOptions | None = None) -> str:
    """The statements of a text in SQL of DuckDB (`query`) or of pipelines. Of declarations of tables only the
    watermarks are used: the streams exist, with their columns. Without a `form`, a statement that writes or has a window
    becomes a pipeline's, any other a query. Raises InvalidSql, with the line, for syntax that has no
    translation."""
    if dialect not in READ_AS:
        raise InvalidArgument(f"'{dialect}' is not a supported dialect: expected one of {', '.join(DIALECTS)}")
    check_sql_text(text, what="the SQL", bytes_max=limits.SQL_BYTES_MAX)
    delays: dict[str, int] = {}
    written = []
    for statement in StatementText.split(text, dialect):
        if (declared := declaration(statement)) is not None:
            table, delay = declared
            if delay is not None:
                delays[table] = delay
            continue
        written.append(_translated(statement, dialect, form, options or DialectOptions(), delays))
    if not written:
        raise InvalidSql("no statement found; expected a SELECT", line=1)
    return ";\n\n".join(written) + ";\n"


def _translated(
    statement: StatementText, dialect: str, form: Form | None, options: DialectOptions, delays: dict[str, int]
) -> str:
    try:
        with collected_warnings() as warnings:
            written = _Translation(statement, dialect, form, options, delays).sql()
    except RecursionError as exc:
        raise statement.error("the statement is nested too deeply to be translated", 0) from exc
    if warnings:
        raise statement.error(f"the statement is not translated: {warnings[0]:.300}", 0)
    return written


class _Translation:
    def __init__(
        self, text: StatementText, dialect: str, form: Form | None, options: DialectOptions, delays: dict[str, int]
    ) -> None:
        self._text = text
        self._dialect = dialect
        self._options = options
        self._delays = delays
        self._found: Found = take_out(text, dialect, options.time)
        self._tree = self._parsed(dialect)
        self._group_windows()
        self._form: Form = form or ("pipeline" if self._found.target or self._found.window else "query")

    def sql(self) -> str:
        """The statement, translated."""
        pipeline = self._form == "pipeline"
        if (found := self._unsupported(pipeline=pipeline)) is not None:
            raise self._error(found[1], found[0])
        if pipeline and (parameter := self._tree.find(exp.Parameter)) is not None:
            raise self._error(
                "a parameter without a name has no value in a pipeline; write :name, and declare it with DECLARE PARAMETER",
                parameter,
            )
        if not pipeline and self._found.target is not None:
            raise self._text.error("a query can't write to a stream; translate it into a pipeline", 0)
        if pipeline and self._found.target is None:
            raise self._text.error(
                "a pipeline must write to a stream: begin with INSERT INTO name, or CREATE TABLE name AS", 0
            )
        # Without a window, groups never end: the stream holds their newest result, as the other system's table does.
        complete = pipeline and self._is_grouped() and self._found.window is None
        # ORDER BY in an aggregate, such as a quantile, orders no results.
        orders = (each for each in self._tree.find_all(exp.Order) if isinstance(each.parent, exp.Query))
        if pipeline and not complete and (order := next(orders, None)) is not None:
            raise self._error("ORDER BY is not supported in a pipeline; order its results where they are read", order)
        streams = self._tables(pipeline=pipeline)
        time = self._windows(pipeline=pipeline)
        try:
            rewrite(self._tree, Conversion(self._dialect, pipeline))
        except NotTranslated as exc:
            raise self._text.error_at(str(exc), self._text.start + exc.start) from exc
        query = self._generated("spark" if pipeline else "duckdb")
        if not pipeline:
            return query
        delay = max((self._delays[each] for each in streams if each in self._delays), default=None)
        settings = ["mode = complete"] if complete else []
        settings += [] if time is None else [f"time = {spark_name(time)}"]
        settings += [] if delay is None else [f"watermark = '{span(delay) if delay else '0 seconds'}'"]
        with_ = f" WITH ({', '.join(settings)})" if settings else ""
        return f"CREATE STREAM {self._stream(str(self._found.target), None)}{with_} AS\n{query}"

    def _unsupported(self, *, pipeline: bool) -> tuple[exp.Expr, str] | None:
        return unsupported(self._tree, self._text.whole[self._text.start :], self._dialect, pipeline=pipeline)

    def _is_grouped(self) -> bool:
        """Whether the statement has GROUP BY or an aggregate. Raises InvalidSql if a query and a subquery in it both do."""
        parts = sorted(self._tree.find_all(exp.Group, exp.AggFunc), key=lambda part: isinstance(part, exp.Group))
        grouped = {id(part.parent_select) for part in parts}
        for part in parts:
            select = part.parent_select
            while select is not None and (select := select.parent_select) is not None:
                if id(select) in grouped:
                    raise self._error(
                        "an aggregate over a subquery with aggregates is not supported in a pipeline; "
                        "write the subquery as a statement of its own, with a window",
                        part,
                    )
        return bool(parts)

    def _parsed(self, dialect: str) -> exp.Query:
        try:
            tree = sqlglot.parse_one(marked(self._text), read=READ_AS[dialect])
        except ParseError as exc:
            first: Any = exc.errors[0] if exc.errors else {}
            highlight = unmarked(first.get("highlight", ""))
            message = f"{first.get('description', 'it cannot be parsed')} near '{highlight}'"
            raise InvalidSql(message, self._text.line(first.get("line", 1))) from exc
        if not isinstance(tree, exp.Query):
            raise self._text.error("only SELECT, CREATE … AS SELECT and INSERT INTO … SELECT are translated", 0)
        number_parameters(self._text, tree)
        return tree

    def _error(self, message: str, node: exp.Expr) -> InvalidSql:
        return self._text.error_at(message, self._text.start + start_of(node))

    # Windows

    def _group_windows(self) -> None:
        """`GROUP BY TUMBLE(c, INTERVAL …)`, with `TUMBLE_START(…)`, Flink's older syntax for windows."""
        for call in list(self._tree.find_all(exp.Anonymous)):
            name = "session" if call.name == SESSION_CALL else call.name.lower()
            kind, _, bound = name.partition("_")
            if kind not in ("tumble", "hop", "session") or bound not in ("", "start", "end"):
                continue
            window = self._window_of(call, kind)
            if self._found.window not in (None, window):
                raise self._error("a second window in one statement is not supported; write a statement for each", call)
            self._found.window = window
            call.replace(exp.column(f"window_{bound or 'start'}"))

    def _window_of(self, call: exp.Anonymous, kind: str) -> DialectWindow:
        column, *lengths = call.expressions
        spans = [us for each in lengths if (us := _length(each)) is not None]
        if (
            not isinstance(column, exp.Column)
            or len(spans) != len(lengths)
            or len(spans) != (2 if kind == "hop" else 1)
        ):
            raise self._error(
                f"expected {kind.upper()}(column, {'INTERVAL …, ' if kind == 'hop' else ''}INTERVAL …)", call
            )
        name = ".".join(part.name for part in column.parts)
        return DialectWindow(WINDOW_KINDS[kind.upper()], name, spans[-1], spans[0] if kind == "hop" else 0)

    def _windows(self, *, pipeline: bool) -> str | None:
        """Rewrite the window for the target. Returns the result's column with the window's end, else that with its start."""
        window = self._found.window
        if window is None:
            if self._found.event_time is not None:
                self._write_event_time(self._found.event_time)
            return None
        select = self._tree.find(exp.Select)
        if select is None or not isinstance(self._tree, exp.Select):
            raise self._text.error("a window is supported in a plain SELECT only", 0)
        if not pipeline and window.kind != "tumble":
            raise self._text.error(f"a query has no {window.kind} windows; use TUMBLE, or a pipeline", 0)
        self._check_grouped(select)
        self._write_bounds_in_where(select, window, pipeline=pipeline)
        time = None
        for wanted, bounds in (("start", _START), ("end", _END)):
            for number, item in enumerate(select.expressions):
                if item.unalias().name.lower() in bounds and isinstance(item.unalias(), exp.Column):
                    time = item.alias_or_name
                    select.expressions[number].replace(exp.alias_(_bound(window, wanted, pipeline=pipeline), time))
            for column in list(select.find_all(exp.Column)):
                if column.name.lower() in bounds and column.find_ancestor(exp.Group) is None:
                    column.replace(_bound(window, wanted, pipeline=pipeline))
        group = select.args.get("group") or exp.Group(expressions=[])
        kept = [each for each in group.expressions if each.name.lower() not in _START | _END | {"window_time"}]
        over = _raw(window.spark) if pipeline else _bound(window, "start", pipeline=False)
        select.set("group", exp.Group(expressions=[over, *kept]))
        return time

    def _write_bounds_in_where(self, select: exp.Select, window: DialectWindow, *, pipeline: bool) -> None:
        """In Azure's WHERE, `System.Timestamp()` is the time of the event. In all others it is the bound of a window, which
        Spark knows only after grouping."""
        for column in list(select.args["where"].find_all(exp.Column)) if select.args.get("where") else []:
            if column.name.lower() not in _START | _END:
                continue
            if self._dialect == "azure":
                *tables, name = (exp.to_identifier(part, quoted=True) for part in window.column.split("."))
                column.replace(exp.Column(this=name, table=tables[-1] if tables else None))
            elif pipeline:
                raise self._error(f"{column.name} in WHERE is not supported in a pipeline; write it in HAVING", column)

    def _write_event_time(self, name: str) -> None:
        for column in list(self._tree.find_all(exp.Column)):
            if column.name.lower() in _END:
                column.replace(exp.to_column(name))

    def _check_grouped(self, select: exp.Select) -> None:
        """Raises InvalidSql unless the window's bounds are in GROUP BY, and in no other SELECT: only then each window is a
        group."""
        group = select.args.get("group")
        keys = [each.name.lower() for each in group.expressions] if group is not None else []
        bounds = _START | _END | {"window_time"}
        for column in self._tree.find_all(exp.Column):
            if column.name.lower() in bounds and column.parent_select is not select:
                raise self._error(
                    "a window is supported in the outermost SELECT only; write a statement for each", column
                )
            if column.name.lower() == "window_time" and column.find_ancestor(exp.Group) is None:
                raise self._error("window_time is not translated; use window_end", column)
        if self._found.groups and bounds.isdisjoint(keys):
            raise self._text.error("a window must be in GROUP BY: write GROUP BY window_start, window_end, …", 0)
        if self._found.partition is not None and {*keys} - bounds != {*self._found.partition}:
            raise self._text.error(
                "sessions are made for each value of the columns in GROUP BY here: write PARTITION BY with the same columns",
                0,
            )

    # Names

    def _tables(self, *, pipeline: bool) -> list[str]:
        """Rewrite the names of streams with their scopes. Returns those that a pipeline reads as streams, by the names
        in the statement."""
        known = {cte.alias.lower() for cte in self._tree.find_all(exp.CTE)}
        streams = []
        for table in list(self._tree.find_all(exp.Table)):
            if table.name.lower() in known and not table.db:
                continue
            given = ".".join(part.name for part in table.parts)
            name = self._stream(given, table)
            first = isinstance(table.parent, exp.From)
            if pipeline and (first or given in self._delays):
                streams.append(given)
                name = f"STREAM {name}"
            table.set("db", None)
            table.set("catalog", None)
            table.set("this", exp.to_identifier(name if pipeline else name.replace("`", '"'), quoted=False))
        return streams

    def _stream(self, given: str, table: exp.Table | None) -> str:
        parts = given.split(".")
        if len(parts) == 1 and self._options.scope is not None:
            parts = [self._options.scope, *parts]
        try:
            if len(parts) != 2:
                wanted = "say its scope with --scope" if len(parts) == 1 else "a stream is scope.name"
                raise InvalidName(f"'{given}' is not the name of a stream: {wanted}")
            name = StreamName.parse("/".join(parts))
        except InvalidName as exc:
            if table is not None:
                raise self._error(str(exc), table) from exc
            raise self._text.error(str(exc), 0) from exc
        return f"{spark_name(name.scope)}.{spark_name(name.name)}"

    def _generated(self, write: str) -> str:
        try:
            return self._tree.sql(
                dialect=write,
                pretty=True,
                comments=False,
                normalize_functions=False,
                unsupported_level=ErrorLevel.RAISE,
            )
        except UnsupportedError as exc:
            raise InvalidSql(str(exc), self._text.tokens[0].line) from exc


def _length(node: exp.Expr) -> int | None:
    """The length of an INTERVAL in µs."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal) or node.unit is None:
        return None
    unit = UNITS_US.get(node.unit.name.lower().removesuffix("s"))
    return (
        int(node.this.name) * unit if unit is not None and node.this.name.isdecimal() and int(node.this.name) else None
    )


def _bound(window: DialectWindow, which: str, *, pipeline: bool) -> exp.Expr:
    written = _raw(window.spark_bound(which) if pipeline else _bucket(window, which))
    written.meta[IS_TIME] = True
    return written


def _bucket(window: DialectWindow, which: str) -> str:
    column = ".".join(map(quoted, window.column.split(".")))
    if window.end_inclusive:
        column = f"{column} - INTERVAL 1 MICROSECOND"
    bucket = f"time_bucket(INTERVAL '{span(window.size_us)}', {column}, {_EPOCH})"
    return bucket if which == "start" else f"{bucket} + INTERVAL '{span(window.size_us)}'"


def _raw(text: str) -> exp.Expr:
    """SQL that is written as it stands."""
    return exp.Var(this=text)
