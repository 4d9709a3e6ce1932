"""Bloom filters in pipeline SQL: what is written out, and what is refused."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidSql
from anabranch.sketches.bloom import expression
from anabranch.spark.pipelines.sql.parse import parse


def query(text: str) -> str:
    (statement,) = parse(
        f"DECLARE PARAMETER p STRING DEFAULT 'x';\nCREATE STREAM s.out AS SELECT {text} FROM STREAM s.a b"
    )
    return statement.query


def test_a_filter_is_written_out_in_functions_of_spark() -> None:
    view = "FROM anabranch_1_stream_1 b"
    assert query("bloom_sketch_agg(x) AS f") == f"SELECT {expression('x', 8)} AS f {view}"
    assert query("BLOOM_SKETCH_AGG( b.x , 2 )") == f"SELECT {expression('b.x', 2)} {view}"
    both = "concat(:p, ',', x)"
    assert query("bloom_sketch_agg(`distinct`)") == f"SELECT {expression('`distinct`', 8)} {view}"
    assert query(f"bloom_sketch_agg({both}), 1") == f"SELECT {expression(both, 8)}, 1 {view}"
    assert (
        query("'bloom_sketch_agg(x)', t.bloom_sketch_agg") == f"SELECT 'bloom_sketch_agg(x)', t.bloom_sketch_agg {view}"
    )
    # Comments are left out, and lines stay where they were.
    assert query("bloom_sketch_agg(a -- b\n || c\n)\n+ 1") == f"SELECT {expression('a || c', 8)}\n\n\n+ 1 {view}"
    assert "bloom_filter_agg(IF((x) IS NULL, NULL, xxhash64(CAST((x) AS STRING))), 3375L, 32768L)" in expression("x", 1)


@pytest.mark.parametrize(
    "call",
    ["bloom_sketch_agg()", "bloom_sketch_agg(x, 257)", "bloom_sketch_agg(x, 1, 2)", "bloom_sketch_agg(DISTINCT x)"],
)
def test_other_arguments_are_refused_at_their_line(call: str) -> None:
    with pytest.raises(InvalidSql, match=r"write bloom_sketch_agg\(value\[, parts\]\)") as refused:
        query(f"\n{call}")
    assert refused.value.line == 3
