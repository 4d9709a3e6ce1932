"""What functions of a query may return, and what is refused."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from anabranch.errors import FunctionFailed
from anabranch.spark.pipelines.declared_functions.calls import FunctionTarget, arrow_call, batch_call, pandas_call

LARGE = (1 << 53) + 1  # no float64 holds it
INTEGERS = pa.schema([("n", pa.int64())])


@pytest.fixture
def returning(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a function that returns a value."""

    def make(value: Any) -> FunctionTarget:
        module = ModuleType(f"returning_{len(sys.modules)}_{id(value)}")
        module.f = lambda *_: value  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return FunctionTarget("f", None, module.__name__, "f")

    return make


def rows_of(target: FunctionTarget, schema: pa.Schema) -> list[dict[str, Any]]:
    given = pa.record_batch({"x": [1]})
    made = list(batch_call(target, schema, given.schema, arrow=True)(iter([given])))
    return pa.Table.from_batches(made, schema).to_pylist()


@pytest.mark.parametrize("values", [[1, None, LARGE], (1, None, LARGE), pa.array([1, None, LARGE])])
def test_large_integers_beside_nulls_are_not_rounded(returning: Any, values: Any) -> None:
    found = pandas_call(returning(values))(pd.Series([1, 2, 3]))
    assert pa.array(found, pa.int64(), from_pandas=True).to_pylist() == [1, None, LARGE]


def test_floats_stay_floats_beside_nulls(returning: Any) -> None:
    assert pandas_call(returning([1.5, None]))(pd.Series([1, 2])).dtype == "float64"


@pytest.mark.parametrize("value", [None, 5])
def test_a_function_over_arrow_that_returns_no_values_is_named(returning: Any, value: Any) -> None:
    with pytest.raises(FunctionFailed, match=rf"expected a value for each row, it returned {type(value).__name__}$"):
        arrow_call(returning(value), pa.int64())(pa.array([1]))


def test_an_integer_beyond_the_type_is_refused(returning: Any) -> None:
    with pytest.raises(FunctionFailed, match="too large"):
        arrow_call(returning([1 << 63]), pa.int64())(pa.array([1]))
    with pytest.raises(FunctionFailed, match="do not fit the columns n"):
        rows_of(returning([{"n": 1 << 63}]), INTEGERS)


@pytest.mark.parametrize("row", [(), "", None, 0, [], [("n", 1)]])
def test_a_row_that_is_no_mapping_is_refused(returning: Any, row: Any) -> None:
    with pytest.raises(FunctionFailed, match=rf"expected mappings, got {type(row).__name__}$"):
        rows_of(returning([{"n": 1}, row]), INTEGERS)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 1.5),
        (pa.list_(pa.int64()), [1.5]),
        (pa.float32(), 1e300),
        (pa.date32(), datetime(2026, 1, 1, 12, tzinfo=UTC)),
    ],
)
def test_a_value_that_its_column_would_change_is_refused(returning: Any, kind: pa.DataType, value: Any) -> None:
    with pytest.raises(FunctionFailed, match="do not fit the columns n"):
        rows_of(returning([{"n": value}]), pa.schema([("n", kind)]))


def test_mappings_may_lack_columns(returning: Any) -> None:
    assert rows_of(returning([{"n": 2}, {}]), INTEGERS) == [{"n": 2}, {"n": None}]
