"""Parses statements of InfluxQL. What the language has beyond the supported part is refused at its place."""

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
        while parser.take_operator(";"):
            continue
        if parser.peek().kind == "end":
            return found
        if len(found) >= limits.INFLUXQL_STATEMENTS_MAX:
            raise parser.refused(f"a query has more than {limits.INFLUXQL_STATEMENTS_MAX} statements")
        found.append(parser.statement())
        if parser.peek().kind != "end" and not parser.peek().is_operator(";"):
            raise parser.unexpected(";", "EOF")


class _InfluxqlParser(ExpressionParser):
    def __init__(self, text: str, parameters: Mapping[str, object]) -> None:
        super().__init__(text, parameters)
        self._subqueries = 0
        self._nested = 0

    def statement(self) -> ast.Parsed:
        if self.peek().is_word(*_UNSUPPORTED):
            raise self.refused(f"{self.peek().value.upper()} is not supported")
        match self.expect_word(*_BEGINNINGS):
            case "SELECT":
                return self._select()
            case "SHOW":
                return self._show()
            case "CREATE":
                return self._create()
            case _:
                return self._drop()

    def _drop(self) -> ast.DatabaseChange | ast.DropContinuousQuery:
        if self.take_word("CONTINUOUS"):
            return ast.DropContinuousQuery(*self._continuous_name())
        return ast.DatabaseChange(f"DROP {self.expect_word('DATABASE', 'MEASUREMENT')}", self.identifier())

    def _continuous_name(self) -> tuple[str, str]:
        self.expect_word("QUERY")
        name = self.identifier()
        self.expect_word("ON")
        return name, self.identifier()

    def _continuous(self) -> ast.ContinuousQuery:
        name, database = self._continuous_name()
        every: int | None = None
        lasting: int | None = None
        if self.take_word("RESAMPLE"):
            if not self.peek().is_word("EVERY", "FOR"):
                raise self.unexpected("EVERY", "FOR")
            every = self._duration() if self.take_word("EVERY") else None
            lasting = self._duration() if self.take_word("FOR") else None
        self.expect_word("BEGIN")
        self.expect_word("SELECT")
        select = self._select()
        interval = select.grouping.interval
        if select.into is None:
            raise self.refused("expected INTO in a continuous query")
        if interval is None:
            raise self.refused("expected GROUP BY time(…) in a continuous query")
        if lasting is not None and lasting < max(interval, every or 0):
            least = "the interval of GROUP BY time(…), and of EVERY"
            raise self.refused(f"the duration of FOR must not be shorter than {least}")
        self.expect_word("END")
        return ast.ContinuousQuery(name, database, select, every, lasting)

    def _duration(self) -> int:
        token = self.peek()
        if token.kind != "duration":
            raise self.unexpected("duration")
        self.take()
        return self._span(token)

    def _create(self) -> ast.DatabaseChange | ast.ContinuousQuery:
        if self.take_word("CONTINUOUS"):
            return self._continuous()
        if self.peek().is_word("RETENTION", "SUBSCRIPTION", "USER"):
            raise self.refused(f"CREATE {self.peek().value.upper()} is not supported")
        self.expect_word("DATABASE")
        name = self.identifier()
        if self.peek().is_word("WITH"):
            raise self.refused(
                "CREATE DATABASE … WITH is not supported: a stream's retention is a setting of the stream"
            )
        return ast.DatabaseChange("CREATE DATABASE", name)

    def _select(self) -> ast.Select:
        fields = self.listed(self._field)
        into = self._target() if self.take_word("INTO") else None
        self.expect_word("FROM")
        sources = tuple(self.listed(self._selected_source))
        where = self.expression() if self.take_word("WHERE") else None
        grouping = self._grouping()
        fill = self._fill()
        ordered = self.peek().is_word("ORDER")
        descending = self._order()
        paging = self._paging()
        zone = self._zone()
        return ast.Select(tuple(fields), sources, where, grouping, fill, descending, ordered, paging, zone, into)

    def _target(self) -> ast.IntoTarget:
        if self._nested:
            raise self.refused("INTO can't be in a subquery")
        names: list[str] = [self.identifier()]
        while self.take_operator("."):
            if self.take_operator(":"):
                if self.peek().value != "MEASUREMENT":
                    raise self.unexpected("MEASUREMENT")
                self.take()
                return ast.IntoTarget(None, *self._database_and_policy(names))
            names.append("" if self.peek().is_operator(".") else self.identifier())
        return ast.IntoTarget(names[-1], *self._database_and_policy(names[:-1]))

    def _selected_source(self) -> ast.SourceName | ast.NestedSelect:
        if not self.take_operator("("):
            return self._source()
        self._subqueries += 1
        self._nested += 1
        if self._subqueries > limits.INFLUXQL_SUBQUERIES_MAX:
            raise self.refused(f"a query has more than {limits.INFLUXQL_SUBQUERIES_MAX} subqueries")
        if self._nested > limits.INFLUXQL_SUBQUERY_DEPTH_MAX:
            raise self.refused(f"subqueries are nested deeper than {limits.INFLUXQL_SUBQUERY_DEPTH_MAX} levels")
        self.expect_word("SELECT")
        inner = self._select()
        self.expect_operator(")")
        self._nested -= 1
        return ast.NestedSelect(inner)

    def _field(self) -> ast.SelectedField:
        if self.peek().is_word("DISTINCT") and not self._calls():
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
        return ast.SelectedField(expression, self.identifier() if self.take_word("AS") else None)

    def _source(self) -> ast.SourceName:
        names: list[str] = []
        while True:
            if (pattern := self.take_regex()) is not None:
                return ast.SourceName(pattern, *self._database_and_policy(names))
            names.append("" if names and self.peek().is_operator(".") else self.identifier())
            if not self.take_operator("."):
                break
        return ast.SourceName(names[-1], *self._database_and_policy(names[:-1]))

    def _database_and_policy(self, names: list[str]) -> tuple[str | None, str | None]:
        """What stands before the name of a measurement: `policy` or `database.policy`."""
        if len(names) > 2:
            raise self.refused("a measurement is database.policy.measurement at most")
        return names[0] if len(names) == 2 else None, (names[-1] or None) if names else None

    def _grouping(self) -> ast.Grouping:
        if not self.take_word("GROUP"):
            return ast.Grouping()
        self.expect_word("BY")
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
            if not self.take_operator(","):
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
        if not self.peek().is_word("FILL"):
            return ast.Fill()
        self.take()
        self.expect_operator("(")
        fill: ast.Fill
        match self.expression():
            case ast.Reference(name) if name.lower() in ("null", "none", "previous", "linear"):
                fill = ast.Fill(name.lower())  # type: ignore[arg-type]
            case ast.Constant(int() | float() as number) if not isinstance(number, bool):
                fill = ast.Fill("number", number)
            case _:
                raise self.refused("fill requires an argument, e.g.: 0, null, none, previous, linear")
        self.expect_operator(")")
        return fill

    def _order(self) -> bool:
        if not self.take_word("ORDER"):
            return False
        self.expect_word("BY")
        if self.peek().is_word("ASC", "DESC"):
            return self.take().value.upper() == "DESC"
        if self.identifier().lower() != "time":
            raise self.refused("only ORDER BY time supported at this time")
        return self.take_word("ASC", "DESC") == "DESC"

    def _paging(self) -> ast.Paging:
        found = {
            word: self.whole_number() if self.take_word(word) else 0
            for word in ("LIMIT", "OFFSET", "SLIMIT", "SOFFSET")
        }
        return ast.Paging(found["LIMIT"] or None, found["OFFSET"], found["SLIMIT"] or None, found["SOFFSET"])

    def _zone(self) -> str | None:
        if not self.peek().is_word("TZ"):
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
        what = self.expect_word(*_SHOWN)
        if (second := _SHOWN[what]) != ():
            what = f"{what} {self.expect_word(*second)}"
        if self.peek().is_word("CARDINALITY", "EXACT"):
            raise self.refused(f"SHOW {what} {self.peek().value.upper()} is not supported")
        database = self.identifier() if self.take_word("ON") else None
        keys = self._with_measurement() if what == "MEASUREMENTS" else None
        sources = tuple(self.listed(self._source)) if self.take_word("FROM") else ()
        if what == "TAG VALUES":
            keys = self._with_key()
        where = self.expression() if self.take_word("WHERE") else None
        if self.take_word("ORDER"):
            self.expect_word("BY")
            self.identifier()
            self.take_word("ASC")
        return ast.Show(what, database, sources, keys, where, self._paging())

    def _with_measurement(self) -> tuple[str, tuple[str | ast.RegularExpression, ...]] | None:
        if not self.take_word("WITH"):
            return None
        self.expect_word("MEASUREMENT")
        operator = self.expect_operator("=", "=~")
        if operator == "=":
            return operator, (self.identifier(),)
        return operator, (self._regex(),)

    def _with_key(self) -> tuple[str, tuple[str | ast.RegularExpression, ...]]:
        self.expect_word("WITH")
        self.expect_word("KEY")
        if self.take_word("IN"):
            self.expect_operator("(")
            names = self.listed(self.identifier)
            self.expect_operator(")")
            return "=", tuple(names)
        operator = self.expect_operator("=", "!=", "<>", "=~", "!~")
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
