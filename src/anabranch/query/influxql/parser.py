"""Parses statements of InfluxQL. Unsupported syntax is refused with its line and character."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch import limits
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.expression_parser import ExpressionParser
from anabranch.query.influxql.times import parse_time, time_zone

_BEGINNINGS: Final = ("SELECT", "SHOW", "CREATE", "DROP")
_UNSUPPORTED: Final = (*("ALTER", "DELETE", "EXPLAIN", "GRANT", "KILL", "REVOKE", "SET"),)
_SHOWN: Final = {
    "DATABASES": (),
    "MEASUREMENTS": (),
    "SERIES": (),
    "USERS": (),
    "SUBSCRIPTIONS": (),
    "TAG": ("KEYS", "VALUES"),
    "FIELD": ("KEYS",),
    "RETENTION": ("POLICIES",),
    "CONTINUOUS": ("QUERIES",),
}


def parse_query(text: str, parameters: Mapping[str, object] | None = None) -> list[ast.Parsed]:
    """The statements of a query, which `;` separates. `parameters` are the values of `$name`. Raises InvalidSql with the
    line and the character, TooLarge."""
    check_sql_text(text, what="the query", bytes_max=limits.SQL_BYTES_MAX)
    parser = _InfluxqlParser(text, parameters or {})
    found: list[ast.Parsed] = []
    while True:
        while parser.accept(";"):
            continue
        if parser.peek().kind == "end":
            return found
        if len(found) >= limits.INFLUXQL_STATEMENTS_MAX:
            raise parser.refused(f"a query has more than {limits.INFLUXQL_STATEMENTS_MAX} statements")
        found.append(parser.statement())
        if parser.peek().kind != "end" and not parser.peek().is_one_of(";"):
            raise parser.unexpected(";", "EOF")


class _InfluxqlParser(ExpressionParser):
    def __init__(self, text: str, parameters: Mapping[str, object]) -> None:
        super().__init__(text, parameters)
        self._subqueries = 0
        self._nested = 0

    def statement(self) -> ast.Parsed:
        if self.peek().is_one_of(*_UNSUPPORTED):
            raise self.refused(f"{self.peek().symbol} is not supported")
        match self.expect(*_BEGINNINGS):
            case "SELECT":
                return self._select()
            case "SHOW":
                return self._show()
            case "CREATE":
                return self._create()
            case _:
                return self._drop()

    def _drop(self) -> ast.DatabaseChange | ast.DropContinuousQuery:
        if self.accept("CONTINUOUS"):
            return ast.DropContinuousQuery(*self._continuous_name())
        return ast.DatabaseChange(f"DROP {self.expect('DATABASE', 'MEASUREMENT')}", self.identifier())

    def _continuous_name(self) -> tuple[str, str]:
        self.expect("QUERY")
        name = self.identifier()
        self.expect("ON")
        return name, self.identifier()

    def _continuous(self) -> ast.ContinuousQuery:
        name, database = self._continuous_name()
        every_ns: int | None = None
        for_ns: int | None = None
        if self.accept("RESAMPLE"):
            if not self.peek().is_one_of("EVERY", "FOR"):
                raise self.unexpected("EVERY", "FOR")
            every_ns = self._duration() if self.accept("EVERY") else None
            for_ns = self._duration() if self.accept("FOR") else None
        self.expect("BEGIN")
        self.expect("SELECT")
        select = self._select()
        interval = select.grouping.interval
        if select.into is None:
            raise self.refused("expected INTO in a continuous query")
        if interval is None:
            raise self.refused("expected GROUP BY time(…) in a continuous query")
        if for_ns is not None and for_ns < max(interval, every_ns or 0):
            least = "the interval of GROUP BY time(…), and of EVERY"
            raise self.refused(f"the duration of FOR must not be shorter than {least}")
        self.expect("END")
        return ast.ContinuousQuery(name, database, select, every_ns, for_ns)

    def _duration(self) -> int:
        token = self.peek()
        if token.kind != "duration":
            raise self.unexpected("duration")
        self.take()
        return self._span(token)

    def _create(self) -> ast.DatabaseChange | ast.ContinuousQuery:
        if self.accept("CONTINUOUS"):
            return self._continuous()
        if self.peek().is_one_of("RETENTION", "SUBSCRIPTION", "USER"):
            raise self.refused(f"CREATE {self.peek().symbol} is not supported")
        self.expect("DATABASE")
        name = self.identifier()
        if self.peek().is_one_of("WITH"):
            raise self.refused(
                "CREATE DATABASE … WITH is not supported: a stream's retention is a setting of the stream"
            )
        return ast.DatabaseChange("CREATE DATABASE", name)

    def _select(self) -> ast.Select:
        fields = self.listed(self._field)
        into = self._target() if self.accept("INTO") else None
        self.expect("FROM")
        sources = tuple(self.listed(self._selected_source))
        where = self.expression() if self.accept("WHERE") else None
        grouping = self._grouping()
        fill = self._fill()
        ordered = self.peek().is_one_of("ORDER")
        descending = self._order()
        paging = self._paging()
        zone = self._zone()
        return ast.Select(tuple(fields), sources, where, grouping, fill, descending, ordered, paging, zone, into)

    def _target(self) -> ast.IntoTarget:
        if self._nested:
            raise self.refused("INTO can't be in a subquery")
        names: list[str] = [self.identifier()]
        while self.accept("."):
            if self.accept(":"):
                if self.peek().value != "MEASUREMENT":
                    raise self.unexpected("MEASUREMENT")
                self.take()
                return ast.IntoTarget(None, *self._database_and_policy(names))
            names.append("" if self.peek().is_one_of(".") else self.identifier())
        return ast.IntoTarget(names[-1], *self._database_and_policy(names[:-1]))

    def _selected_source(self) -> ast.SourceName | ast.NestedSelect:
        if not self.accept("("):
            return self._source()
        self._subqueries += 1
        self._nested += 1
        if self._subqueries > limits.INFLUXQL_SUBQUERIES_MAX:
            raise self.refused(f"a query has more than {limits.INFLUXQL_SUBQUERIES_MAX} subqueries")
        if self._nested > limits.INFLUXQL_SUBQUERY_DEPTH_MAX:
            raise self.refused(f"subqueries are nested deeper than {limits.INFLUXQL_SUBQUERY_DEPTH_MAX} levels")
        self.expect("SELECT")
        inner = self._select()
        self.expect(")")
        self._nested -= 1
        return ast.NestedSelect(inner)

    def _field(self) -> ast.SelectedField:
        if self.peek().is_one_of("DISTINCT") and not self._calls():
            self.take()
            expression: ast.Expression = ast.FunctionCall("distinct", (self._reference(),))
        else:
            expression = self.expression()
        for part in ast.walk(expression):
            if (
                isinstance(part, ast.RegularExpression | ast.Wildcard)
                and part is not expression
                and not _is_argument(part, expression)
            ):
                raise self.refused("a wildcard or a regular expression stands alone or as the argument of a function")
        return ast.SelectedField(expression, self.identifier() if self.accept("AS") else None)

    def _source(self) -> ast.SourceName:
        names: list[str] = []
        while True:
            if (pattern := self.take_regex()) is not None:
                return ast.SourceName(pattern, *self._database_and_policy(names))
            names.append("" if names and self.peek().is_one_of(".") else self.identifier())
            if not self.accept("."):
                break
        return ast.SourceName(names[-1], *self._database_and_policy(names[:-1]))

    def _database_and_policy(self, names: list[str]) -> tuple[str | None, str | None]:
        """The qualifier before the name of a measurement: `policy` or `database.policy`."""
        if len(names) > 2:
            raise self.refused("a measurement is database.policy.measurement at most")
        return names[0] if len(names) == 2 else None, (names[-1] or None) if names else None

    def _grouping(self) -> ast.Grouping:
        if not self.accept("GROUP"):
            return ast.Grouping()
        self.expect("BY")
        interval: int | None = None
        offset = 0
        tags: list[str | ast.RegularExpression | ast.Wildcard] = []
        while True:
            if (pattern := self.take_regex()) is not None:
                tags.append(pattern)
            else:
                match self.expression():
                    case ast.FunctionCall("time", arguments):
                        if interval is not None:
                            raise self.refused("multiple time dimensions not allowed")
                        interval, offset = self._interval(arguments)
                    case ast.Reference(name):
                        tags.append(name)
                    case ast.Wildcard() as wildcard:
                        tags.append(wildcard)
                    case _:
                        raise self.refused("only time and tag dimensions allowed")
            if not self.accept(","):
                return ast.Grouping(interval, offset, tuple(tags))

    def _interval(self, arguments: tuple[ast.Expression, ...]) -> tuple[int | None, int]:
        match arguments:
            case (ast.Duration(ns),):
                offset = 0
            case (ast.Duration(ns), ast.Duration(offset)):
                pass
            case (ast.Duration(ns), ast.Constant(str() as text)) if (moment := parse_time(text)) is not None:
                offset = moment % ns if ns else 0
            case _:
                raise self.refused("time dimension expected 1 or 2 arguments, durations such as 10m")
        if ns < 0 or ns % 1_000 or offset % 1_000:
            raise self.refused("the interval of time() is a whole number of microseconds")
        return ns or None, offset

    def _fill(self) -> ast.Fill:
        if not self.peek().is_one_of("FILL"):
            return ast.Fill()
        self.take()
        self.expect("(")
        fill: ast.Fill
        match self.expression():
            case ast.Reference(name) if name.lower() in ("null", "none", "previous", "linear"):
                fill = ast.Fill(name.lower())  # type: ignore[arg-type]
            case ast.Constant(int() | float() as number) if not isinstance(number, bool):
                fill = ast.Fill("number", number)
            case _:
                raise self.refused("fill requires an argument, e.g.: 0, null, none, previous, linear")
        self.expect(")")
        return fill

    def _order(self) -> bool:
        if not self.accept("ORDER"):
            return False
        self.expect("BY")
        if self.peek().is_one_of("ASC", "DESC"):
            return self.take().symbol == "DESC"
        if self.identifier().lower() != "time":
            raise self.refused("only ORDER BY time supported at this time")
        return self.accept("ASC", "DESC") == "DESC"

    def _paging(self) -> ast.Paging:
        found = {
            word: self.whole_number() if self.accept(word) else 0 for word in ("LIMIT", "OFFSET", "SLIMIT", "SOFFSET")
        }
        return ast.Paging(found["LIMIT"] or None, found["OFFSET"], found["SLIMIT"] or None, found["SOFFSET"])

    def _zone(self) -> str | None:
        if not self.peek().is_one_of("TZ"):
            return None
        match self.expression():
            case ast.FunctionCall("tz", (ast.Constant(str() as zone),)):
                try:
                    time_zone(zone)
                except InvalidSql as exc:
                    raise self.refused(str(exc)) from exc
                return zone
        raise self.refused("tz() takes the name of a time zone, e.g.: tz('Europe/Berlin')")

    def _show(self) -> ast.Show:
        what = self.expect(*_SHOWN)
        if (second := _SHOWN[what]) != ():
            what = f"{what} {self.expect(*second)}"
        if self.peek().is_one_of("CARDINALITY", "EXACT"):
            raise self.refused(f"SHOW {what} {self.peek().symbol} is not supported")
        database = self.identifier() if self.accept("ON") else None
        keys = self._with_measurement() if what == "MEASUREMENTS" else None
        sources = tuple(self.listed(self._source)) if self.accept("FROM") else ()
        if what == "TAG VALUES":
            keys = self._with_key()
        where = self.expression() if self.accept("WHERE") else None
        if self.accept("ORDER"):
            self.expect("BY")
            self.identifier()
            self.accept("ASC")
        return ast.Show(what, database, sources, keys, where, self._paging())

    def _with_measurement(self) -> tuple[str, tuple[str | ast.RegularExpression, ...]] | None:
        if not self.accept("WITH"):
            return None
        self.expect("MEASUREMENT")
        operator = self.expect("=", "=~")
        if operator == "=":
            return operator, (self.identifier(),)
        return operator, (self._regex(),)

    def _with_key(self) -> tuple[str, tuple[str | ast.RegularExpression, ...]]:
        self.expect("WITH")
        self.expect("KEY")
        if self.accept("IN"):
            self.expect("(")
            names = self.listed(self.identifier)
            self.expect(")")
            return "=", tuple(names)
        operator = self.expect("=", "!=", "<>", "=~", "!~")
        if operator in ("=~", "!~"):
            return operator, (self._regex(),)
        return "!=" if operator == "<>" else operator, (self.identifier(),)

    def _regex(self) -> ast.RegularExpression:
        found = self.take_regex()
        if found is None:
            raise self.unexpected("regex")
        return found


def _is_argument(part: ast.Expression, expression: ast.Expression) -> bool:
    return any(
        isinstance(each, ast.FunctionCall) and any(part is one for one in each.arguments)
        for each in ast.walk(expression)
    )
