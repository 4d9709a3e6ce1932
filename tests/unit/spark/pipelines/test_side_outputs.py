"""Side outputs and feedback of random rows: the SQL that divides them, computed by DuckDB, and the division itself, held to a
model that takes one row and one clause after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa
import sqlglot
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.model.names import StreamName
from anabranch.spark.pipelines.side_outputs import OUTPUTS_COLUMN, SideOutput, feedback_mask, outputs_sql, split

SCHEMA: Final = pa.schema([("n", pa.int64()), ("x", pa.int64()), ("hops", pa.int64())])

Row = dict[str, Any]
CONDITIONS: Final[dict[str, Callable[[Row], bool]]] = {
    "x > 2": lambda row: row["x"] is not None and row["x"] > 2,
    "x IS NULL OR x < 0": lambda row: row["x"] is None or row["x"] < 0,
    "NOT (x > 2)": lambda row: row["x"] is not None and row["x"] <= 2,
    "x % 2 = 0 AND n > 3": lambda row: row["x"] is not None and row["x"] % 2 == 0 and row["n"] > 3,
    "NULL": lambda row: False,
    "true": lambda row: True,
    "false": lambda row: False,
    "hops IS NOT NULL": lambda row: row["hops"] is not None,
}


@dataclass(frozen=True)
class Clause:
    condition: str
    copies: bool
    hops_max: int | None

    def takes(self, row: Row) -> bool:
        below = self.hops_max is None or (row["hops"] or 0) < self.hops_max
        return below and CONDITIONS[self.condition](row)


CLAUSES: Final = st.lists(
    st.builds(Clause, st.sampled_from(sorted(CONDITIONS)), st.booleans(), st.none() | st.integers(1, 3)),
    min_size=1,
    max_size=6,
)
ROWS: Final = st.lists(
    st.tuples(st.none() | st.integers(-4, 6), st.none() | st.integers(0, 3)), min_size=1, max_size=20
)


def by_definition(rows: Sequence[Row], clauses: Sequence[Clause]) -> list[list[int]]:
    """The numbers of the rows of the statement's own stream, then those of each clause's."""
    found: list[list[int]] = [[] for _ in range(len(clauses) + 1)]
    for row in rows:
        moved = next((n for n, each in enumerate(clauses, 1) if not each.copies and each.takes(row)), 0)
        copied = [n for n, each in enumerate(clauses, 1) if each.copies and each.takes(row)]
        for number in (moved, *copied):
            found[number].append(row["n"])
    return found


@given(ROWS, CLAUSES)
@example([(3, 1), (3, 2)], [Clause("true", False, 2), Clause("x > 2", True, None)])
def test_each_row_goes_where_the_first_true_clause_and_all_copies_say(
    values: list[tuple[int | None, int | None]], clauses: list[Clause]
) -> None:
    rows: list[Row] = [{"n": number, "x": x, "hops": hops} for number, (x, hops) in enumerate(values)]
    sides = tuple(
        SideOutput(StreamName.parse(f"s/{number}"), each.condition, 10 + number, each.copies, each.hops_max)
        for number, each in enumerate(clauses)
    )
    (text,) = sqlglot.transpile(outputs_sql(sides, "result"), read="spark", write="duckdb")
    with duckdb.connect() as database:
        database.register("result", pa.Table.from_pylist(rows, SCHEMA))
        divided = database.sql(text).to_arrow_table().combine_chunks()
    assert divided.column_names == [*SCHEMA.names, OUTPUTS_COLUMN]
    (batch,) = divided.to_batches()
    parts = list(split(batch, len(sides)))
    expected = by_definition(rows, clauses)
    assert [part.column("n").to_pylist() for part in parts] == expected
    assert {part.schema.names == SCHEMA.names for part in parts} == {True}
    # A row is in one place, and wherever a copy goes.
    assert sum(map(len, expected)) == len(rows) + sum(
        each.copies and each.takes(row) for each in clauses for row in rows
    )
    fed = {n for each, number in zip(clauses, expected[1:], strict=True) if each.hops_max is not None for n in number}
    marked = [mask & feedback_mask(sides) != 0 for mask in divided.column(OUTPUTS_COLUMN).to_pylist()]
    assert {row["n"] for row, leads_back in zip(rows, marked, strict=True) if leads_back} == fed
    assert all((rows[number]["hops"] or 0) < 3 for number in fed)


@given(CLAUSES)
def test_the_conditions_are_on_their_lines_of_the_file(clauses: list[Clause]) -> None:
    sides = tuple(
        SideOutput(StreamName.parse("s/a"), each.condition, 2 + 3 * number, each.copies, each.hops_max)
        for number, each in enumerate(clauses)
    )
    lines = outputs_sql(sides, "result").splitlines()
    for side in sides:
        assert f"({side.condition})" in lines[side.line - 1]
