"""The SQL for DuckDB of a SELECT over one relation."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.conditions import ConditionSql
from anabranch.query.influxql.derived import DerivedRows
from anabranch.query.influxql.functions import AGGREGATES, number_of
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.plan import Needed, SelectPlan, used_fields


class SelectSql:
    """The SQL of a plan over one relation. The rows of each query begin with the tags of GROUP BY; their order is by
    these and by time."""

    def __init__(self, plan: SelectPlan, relation: Measurement | DerivedRows) -> None:
        self._plan = plan
        self._relation = relation
        self._time = relation.row_time
        self._tags = [relation.tag(tag) for tag in plan.select.grouping.names]

    def text(self) -> str:
        """The query."""
        if self._plan.listed is not None:
            return self.listed(self._plan.listed)
        return self.events() if self._plan.raw else self.aggregates()

    def events(self) -> str:
        """Tags, the time in µs, and the value of each reference in `base`."""
        plan = self._plan
        values = [self._within(each, self.value(each.expression)) for each in plan.base]
        columns = [*self._tags, self._time, *values]
        ordered = ", ".join([*self._by(), *self._relation.order(descending=plan.select.descending)])
        return f"SELECT {', '.join(columns)} {self._from()} ORDER BY {ordered}{self._limit()}"

    def aggregates(self) -> str:
        """Tags, the start of the window or the time of the selected event in µs, then for each call of `base` its value
        and the number of values that it has seen."""
        plan, columns = self._plan, list(self._tags)
        selector = plan.selector
        columns.append(plan.windows.sql(self._time) if plan.windows else self._selected_time(selector))
        for each in plan.base:
            call = each.expression
            if isinstance(call, ast.FunctionCall):
                value = self._within(each, self._argument(call))
                columns += [self._aggregate(call, value), f"count({value})"]
            elif selector is not None:
                chosen = self._picked(selector, self.value(call))
                columns += [chosen, f"count({self._argument(selector)})"]
        grouped = self._numbers() + ([str(len(self._tags) + 1)] if plan.windows else [])
        by = f" GROUP BY {', '.join(grouped)}" if grouped else ""
        windows = [str(len(self._tags) + 1)] if plan.windows else []
        order = f" ORDER BY {', '.join([*self._by(), *windows])}" if grouped else ""
        return f"SELECT {', '.join(columns)} {self._from()}{by}{order}"

    def listed(self, call: ast.FunctionCall) -> str:
        """Tags, the start of the window in µs, the event's time in µs, the value, then the other references."""
        window = self._plan.windows.sql(self._time) if self._plan.windows else "0"
        value = self._argument(call)
        if call.name == "distinct":
            columns = [*self._tags, window, window, value]
            keys = ", ".join(f"c{number}" for number in range(len(columns)))
            first_seen = f"SELECT {_named([*columns, self._time])} {self._from()} AND {value} IS NOT NULL"
            by = ", ".join(f"c{number}" for number in range(len(self._tags) + 1))
            return f"SELECT {keys} FROM ({first_seen}) GROUP BY {keys} ORDER BY {by}, min(c{len(columns)}), c{len(columns) - 1}"
        direction = "DESC" if call.name == "top" else "ASC"
        tags = [self.value(each) for each in call.arguments[1:-1]]
        others = [self.value(each) for each in self._plan.leaves if isinstance(each, ast.Reference)]
        columns = [*self._tags, window, self._time, value, *tags, *others]
        first = len(self._tags)
        partition = ", ".join(f"c{number}" for number in range(first + 1))
        order = f"c{first + 2} {direction}, c{first + 1}"
        rows = f"SELECT {_named(columns)} {self._from()} AND {value} IS NOT NULL"
        if tags:
            per_tag = ", ".join([partition, *(f"c{first + 3 + number}" for number in range(len(tags)))])
            rows += f" QUALIFY row_number() OVER (PARTITION BY {per_tag} ORDER BY {order}) = 1"
        count = int(number_of(call.arguments[-1]))
        return (
            f"SELECT * FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY {partition} ORDER BY {order}) <= {count} "
            f"ORDER BY {', '.join([*(f'c{number}' for number in range(first + 1)), f'c{first + 1}', f'c{first + 2} {direction}'])}"
        )

    def value(self, expression: ast.Expression) -> str:
        """The SQL of a reference: a field, a tag (null where it is empty), or null."""
        assert isinstance(expression, ast.Reference), "it is a leaf"
        relation, name, cast = self._relation, expression.name, expression.cast
        kind = relation.fields.get(name)
        if kind is None or cast == "tag":
            return relation.shown_tag(name) if cast in (None, "tag") else "NULL"
        column = relation.column(name)
        match cast:
            case "integer" if kind == "float":
                return f"CAST(trunc({column}) AS BIGINT)"
            case "float" if kind == "integer":
                return f"CAST({column} AS DOUBLE)"
            case None | "field":
                return f"CAST({column} AS DOUBLE)" if kind == "float" else column
        return column if cast == kind else "NULL"

    def _argument(self, call: ast.FunctionCall) -> str:
        inner = call.arguments[0]
        return self.value(inner.arguments[0] if isinstance(inner, ast.FunctionCall) else inner)

    def _within(self, needed: Needed, value: str) -> str:
        """A value, without those that only other calls need of the window beside the time range."""
        plan = self._plan
        if not plan.mixed:
            return value
        return f"CASE WHEN {self._relation.of_window_beyond(needed.beyond, plan.times)} THEN {value} END"

    def _aggregate(self, call: ast.FunctionCall, value: str) -> str:
        inner, aggregate = call.arguments[0], AGGREGATES[call.name]
        if isinstance(inner, ast.FunctionCall):
            return f"count(DISTINCT {value})"
        assert isinstance(inner, ast.Reference), "it has been checked"
        kind = self._relation.fields.get(inner.name)
        if kind is None:
            return "NULL"
        if kind not in aggregate.types:
            raise InvalidSql(f"unsupported {call.name} iterator type: {inner.name} is a {kind}")
        found = aggregate.sql.format(value=value, wanted=value, time=self._time, number=_number(call))
        return f"CAST({found} AS BIGINT)" if kind == "integer" and call.name == "sum" else found

    def _picked(self, selector: ast.FunctionCall, wanted: str) -> str:
        picked = AGGREGATES[selector.name].picked
        assert picked is not None, "it is a selector"
        return picked.format(value=self._argument(selector), wanted=wanted, time=self._time, number=_number(selector))

    def _selected_time(self, selector: ast.FunctionCall | None) -> str:
        if selector is None:
            return "NULL"
        extreme = {"first": "min", "last": "max"}.get(selector.name)
        if extreme is not None:  # without a sort
            return f"{extreme}({self._time}) FILTER (WHERE {self._argument(selector)} IS NOT NULL)"
        return self._picked(selector, self._time)

    def _numbers(self) -> list[str]:
        return [str(number + 1) for number in range(len(self._tags))]

    def _by(self) -> list[str]:
        """The order of the series: by their tags."""
        return [f"{number} DESC" if self._plan.select.descending else number for number in self._numbers()]

    def _from(self) -> str:
        plan, relation = self._plan, self._relation
        conditions = [relation.in_time(plan.read)]
        if plan.condition is not None:
            conditions.append(ConditionSql(relation).condition(plan.condition))
        if plan.raw and not isinstance(relation, DerivedRows):  # InfluxDB shows empty rows of subqueries
            present = [f"{relation.column(name)} IS NOT NULL" for name in used_fields(plan, relation)]
            conditions.append(f"({' OR '.join(present) or 'false'})")
        joined = " AND ".join(each for each in conditions if each is not None) or "true"
        return f"FROM {relation.table} WHERE {joined}"

    def _limit(self) -> str:
        """The rows that are needed at all, where DuckDB can tell."""
        paging = self._plan.select.paging
        most = limits.INFLUXQL_ROWS_MAX + 1
        rows = all(isinstance(leaf, ast.Reference) for leaf in self._plan.leaves)
        if paging.limit is not None and rows and not self._tags:
            most = min(most, paging.limit + paging.offset)
        return f" LIMIT {most}"


def _number(call: ast.FunctionCall) -> float:
    """The second argument of a function that has one."""
    return float(number_of(call.arguments[1])) if AGGREGATES[call.name].numbers else 0.0


def _named(columns: Sequence[str]) -> str:
    """Columns with names by their place: `c0`, `c1`."""
    return ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
