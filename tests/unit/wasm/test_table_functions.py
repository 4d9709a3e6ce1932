"""Functions of modules that return tables: their rows, their types, and modules that misbehave."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import InvalidArgument, ModuleFailed
from anabranch.runtime.tasks import ThreadTasks
from anabranch.wasm.check import check_module
from anabranch.wasm.columns import NAMES
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.function import WasmTableFunction
from anabranch.wasm.signature import parse_signature
from tests.wasm_modules import ECHO, OVER_OF, function, module, over

VALUES = {
    "boolean": [True, False],
    "timestamp": [0, 1_700_000_000_000_001],
    "date": [0, 20_000],
    "string": ["", "grüße"],
    "binary": [b"\xff", b""],
}


@pytest.fixture
def engine() -> Iterator[WasmEngine]:
    made = WasmEngine(ThreadTasks())
    yield made
    made.close()


def loaded(engine: WasmEngine, code: bytes, signature: str) -> WasmTableFunction:
    check_module(engine, code, [signature])
    return WasmTableFunction(engine, engine.compile(code), parse_signature(signature))


def batch(values: Sequence[object], kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, kind)})


def numbers(*values: int) -> pa.RecordBatch:
    return batch(values, pa.int64())


def made(function: WasmTableFunction, *batches: pa.RecordBatch) -> list[dict[str, object]]:
    return pa.Table.from_batches(function(batches), function.schema).to_pylist()


def test_a_function_makes_rows_of_rows_and_more_at_the_end(engine: WasmEngine) -> None:
    found = loaded(engine, over(), OVER_OF)
    assert found.schema == pa.schema({"n": pa.int64(), "twice": pa.float64()})
    given = [numbers(1, 5, 2), numbers(), numbers(0), numbers(7, 3)]
    rows = [(5, 10.0), (7, 14.0), (3, 6.0), (6, None)]
    wanted = [{"n": n, "twice": twice} for n, twice in rows]
    assert made(found, *given) == wanted
    assert made(found, *given) == wanted, "nothing is left of the call before"
    assert made(found, numbers()) == [], "it is not called without rows"


def test_large_batches_come_in_pieces_and_casts_are_done(engine: WasmEngine) -> None:
    count = limits.MODULE_ROWS_MAX * 2 + 77
    rows = made(loaded(engine, over(), OVER_OF), batch(range(count), pa.int32()))
    assert [row["n"] for row in rows] == [*range(3, count), count]


def test_nothing_of_the_call_before_is_in_the_columns_of_the_next(engine: WasmEngine) -> None:
    body = """
        (if (i32.eq (local.get $rows) (i32.const 2)) (then (i32.store offset=8 (local.get $out) (i32.const 900))))
        (i32.store (local.get $out) (local.get $in)) (i32.store offset=20 (local.get $batch) (local.get $rows)) (i32.const 0)"""
    found = loaded(engine, *returns(body))
    assert [row["n"] for row in made(found, numbers(1, 2), numbers(3))] == [None, None, 3]


@pytest.mark.parametrize("kind", NAMES)
def test_every_type_with_nulls(engine: WasmEngine, kind: str) -> None:
    function = loaded(engine, over(), f"echo(n {kind}) -> table (n {kind})")
    column = pa.array(VALUES.get(kind, [1, 2]), function.schema.types[0])
    for given in (column, pa.concat_arrays([pa.nulls(1, column.type), column, column[:1]]), column[1:]):
        rows = given.to_pylist()
        assert [row["n"] for row in made(function, pa.record_batch({"n": given}))] == rows


@pytest.mark.parametrize("kind", NAMES)
def test_a_batch_may_make_no_rows(engine: WasmEngine, kind: str) -> None:
    none = loaded(engine, *returns("(i32.const 0)", f"n {kind}"))
    assert [(each.num_rows, each.schema) for each in none([numbers(1), numbers(2)])] == [(0, none.schema)] * 2


def returns(body: str, columns: str = "n int64") -> tuple[bytes, str]:
    return module(function("f", body)), f"f(n int64) -> table ({columns})"


ROWS = "(i32.store offset=20 (local.get $batch) (i32.const {}))"
DONE = "(i32.const 0)"


@pytest.mark.parametrize(
    ("body", "columns", "message"),
    [
        (ROWS.format(-1) + DONE, "n int64", "it returned 4,294,967,295 rows at once, over the limit of 1,048,576"),
        (
            ROWS.format(1_000_000) + "(i32.store (local.get $out) (i32.const 8))" + DONE,
            "n int64",
            "the values of its result, at 8 with 8,000,000 bytes, points outside",
        ),
        (
            ROWS.format(2) + "(i32.store (local.get $out) (local.get $in))" + DONE,
            "n int64, more int32",
            "it returned 2 rows without values for the column 'more'",
        ),
        (ROWS.format(1) + DONE, "n string", "it returned 1 rows without offsets for the column 'n'"),
        (
            ROWS.format(1) + "(i32.store (local.get $out) (i32.const -8))" + DONE,
            "n int64",
            "the values of its result, at 4294967288 with 8 bytes, points outside",
        ),
        (
            ROWS.format(1)
            + "(i32.store (local.get $out) (local.get $in)) (i32.store offset=8 (local.get $out) (i32.const -1))"
            + DONE,
            "n int64",
            "the validity of its result, at 4294967295 with 1 bytes, points outside",
        ),
        (
            ROWS.format(1) + "(i32.store offset=4 (local.get $out) (i32.const -1))" + DONE,
            "n string",
            "the offsets of its result, at 4294967295 with 8 bytes, points outside",
        ),
        (
            ROWS.format(1)
            + "(i32.store (i32.const 68) (i32.const -1)) (i32.store offset=4 (local.get $out) (i32.const 64))"
            + DONE,
            "n string",
            "the values of its result, at 0 with 4,294,967,295 bytes, points outside",
        ),
        (
            ROWS.format(2)
            + "(i32.store (i32.const 68) (i32.const 9)) (i32.store (i32.const 72) (i32.const 1))"
            + "(i32.store offset=4 (local.get $out) (i32.const 64))"
            + DONE,
            "n string",
            "its result is not a column of string",
        ),
        (
            ROWS.format(1)
            + "(i32.store (i32.const 68) (i32.const 1)) (i32.store8 (i32.const 80) (i32.const 255))"
            + "(i32.store (local.get $out) (i32.const 80)) (i32.store offset=4 (local.get $out) (i32.const 64))"
            + DONE,
            "n string",
            "its result is not a column of string: Invalid UTF8",
        ),
        (
            "(drop (memory.grow (i32.const 150)))"
            + ROWS.format(1_048_576)
            + "".join(f"(i32.store offset={number * 16} (local.get $out) (i32.const 8))" for number in range(9))
            + DONE,
            ", ".join(f"n{number} int64" for number in range(9)),
            "it returned more than 64 MiB at once",
        ),
        ("(loop $for_ever (br $for_ever)) (i32.const 0)", "n int64", "it was stopped: it used all its instructions"),
        (
            "(i32.store (i32.const 64) (i32.const 0x6f6e)) (i32.const 64)",
            "n int64",
            "the module's function f failed: no$",
        ),
        ("unreachable", "n int64", "wasm `unreachable` instruction executed, in a batch of 1 rows"),
    ],
)
def test_a_function_that_misbehaves_fails_with_one_line(
    engine: WasmEngine, body: str, columns: str, message: str
) -> None:
    found = loaded(engine, *returns(body, columns))
    with pytest.raises(ModuleFailed, match=message):
        made(found, numbers(1))


def test_the_end_may_work_as_long_as_all_batches_together(engine: WasmEngine) -> None:
    # 20 million instructions a row: too much for one call with few rows, enough for 10,000 rows in all.
    loop = """(local.set $n (i32.const {}))
      (loop $again (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n))) (i32.const 0)"""
    code = module(function("f", DONE), function("f_end", loop.format(30_000_000)))
    found = loaded(engine, code, "f(n int64) -> table (n int64)")
    began = time.monotonic()
    assert made(found, numbers(*range(10_000))) == []
    assert time.monotonic() - began < limits.MODULE_CALL_S_MAX
    with pytest.raises(ModuleFailed, match="used all its instructions"):
        made(found, numbers(1))


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("f(x double) -> table ()", "the table of f has 0 columns"),
        (f"f(x double) -> table ({', '.join(f'c{n} int8' for n in range(101))})", "the table of f has 101 columns"),
        ("f(x double) -> table (double)", "'double' is not a name with a type"),
        ("f(x double) -> table (a int8, A int8)", "two columns of the table of f have the same name"),
        ("f(x double) -> table (a wide)", "unknown type 'wide'"),
        ("aggregate f(x double) -> table (a int8)", "f is an aggregate, which returns a value for each group"),
        ("f(x double) -> table", "unknown type 'table'"),
    ],
)
def test_tables_that_are_refused(signature: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said.replace("(", r"\(")):
        parse_signature(signature)


def test_a_signature_with_a_table_is_read_and_written() -> None:
    found = parse_signature("f ( x:double ) ->  TABLE( a text , b timestamp )")
    assert str(found) == "f(x double) -> table (a string, b timestamp)"
    assert parse_signature(str(found)) == found
    assert found.table == pa.schema({"a": pa.string(), "b": pa.timestamp("us", tz="UTC")})


def test_an_end_that_is_no_function_of_a_batch_is_refused(engine: WasmEngine) -> None:
    code = module(ECHO, '(func (export "echo_end"))')
    with pytest.raises(InvalidArgument, match=r"the module's function 'echo_end' is \(\) -> \(\), but takes"):
        check_module(engine, code, ["echo(n int64) -> table (n int64)"])


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("echo(x int64) -> table (y int64)", None),
        (
            "echo(n double) -> table (n int64)",
            "the module's function is echo(n int64) -> table (n int64), not echo(n double)",
        ),
        (
            "echo(n int64) -> table (n double)",
            "the module's function is echo(n int64) -> table (n int64), not echo(n int64)",
        ),
        ("echo(n int64) -> table (n int64, m int64)", "not echo(n int64) -> table (n int64, m int64)"),
        ("echo(n int64) -> int64", "not echo(n int64) -> int64"),
    ],
)
def test_types_are_those_of_the_modules_own_section(engine: WasmEngine, signature: str, said: str | None) -> None:
    own = b"\x09anabranch" + b"echo(n int64) -> table (n int64)"
    code = module(ECHO) + bytes([0, len(own)]) + own
    if said is None:
        assert str(check_module(engine, code, [signature])[0]) == signature
        return
    with pytest.raises(InvalidArgument, match=re.escape(said)):
        check_module(engine, code, [signature])
