"""Functions of modules over columns: types, nulls, sizes, and modules that misbehave."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import Closed, InvalidArgument, ModuleFailed
from anabranch.runtime.tasks import ThreadTasks
from anabranch.wasm.check import check_module
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.function import WasmFunction
from tests.wasm_modules import (
    ENDLESS,
    FAHRENHEIT,
    IS_HOT,
    SCORE,
    SPREAD_OF,
    each_row,
    function,
    heat,
    module,
    spread,
)


@pytest.fixture
def engine() -> Iterator[WasmEngine]:
    made = WasmEngine(ThreadTasks())
    yield made
    made.close()


def loaded(engine: WasmEngine, code: bytes, *signatures: str) -> WasmFunction:
    """The first function of a module."""
    return WasmFunction(engine, engine.compile(code), check_module(engine, code, signatures)[0])


def column(values: Sequence[object], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


def test_a_function_makes_a_column_of_columns(engine: WasmEngine) -> None:
    score = loaded(engine, heat(), SCORE)
    assert score([column([0.0, 100.0, -40.0])]).to_pylist() == [32.0, 212.0, -40.0]
    assert loaded(engine, heat(), IS_HOT)([column([1.5, 2.5, 3.0])]).to_pylist() == [False, True, True]
    two = each_row(
        "sum",
        "(i64.store (local.get $out) (i64.add (i64.load (local.get $in)) (i64.load32_s (local.get $in2))))",
        into=8,
        size2=4,
    )
    added = loaded(engine, module(two), "sum(a int64, b int32) -> int64")
    assert added([column([1, 2], pa.int64()), column([10, -20], pa.int32())]).to_pylist() == [11, -18]


def test_a_null_gives_null(engine: WasmEngine) -> None:
    score = loaded(engine, heat(), SCORE)
    values = [None, 1.0, None, 10.0, *[0.0] * 7, None]
    assert score([column(values)]).to_pylist() == [None, 33.8, None, 50.0, *[32.0] * 7, None]
    assert score([column([None, None], pa.float64())]).to_pylist() == [None, None]
    assert score([pa.chunked_array([pa.array(values).slice(3, 9)])]).to_pylist() == [50.0, *[32.0] * 7, None]


def test_a_function_may_return_nulls_itself(engine: WasmEngine) -> None:
    # It clears the first byte of the result's validity: rows 0 to 7.
    clears = function("f", "(i32.store8 (i32.load offset=16 (local.get $batch)) (i32.const 0)) (i32.const 0)")
    found = loaded(engine, module(clears), "f(x int8) -> int8")([column([1] * 10, pa.int8())])
    assert found.to_pylist() == [None] * 8 + [0, 0]


def test_columns_of_any_size_are_given_in_batches(engine: WasmEngine) -> None:
    rows = limits.MODULE_ROWS_MAX * 2 + 77
    counts = each_row("rows", "(i32.store (local.get $out) (local.get $rows))", into=4, size=8)
    sizes = loaded(engine, module(counts), "rows(x int64) -> int32")
    chunks = pa.chunked_array([pa.array(range(1000)), pa.array(range(rows - 1000))])
    found = sizes([chunks]).to_pylist()
    assert found == [limits.MODULE_ROWS_MAX] * (rows - 77) + [77] * 77
    assert sizes([column([], pa.int64())]).to_pylist() == []
    assert sizes([column([5, 6, 7], pa.int64())]).to_pylist() == [3, 3, 3]


SAME: dict[str, Sequence[object]] = {
    "boolean": [True, False, None, True],
    "int8": [-128, 127, None],
    "int16": [-5, 300],
    "int32": [-5, 1 << 30],
    "int64": [-5, 1 << 62],
    "uint8": [255, 0],
    "uint16": [65535],
    "uint32": [1 << 31],
    "uint64": [(1 << 64) - 1, None],
    "float32": [1.5, float("inf")],
    "double": [1e300, None],
    "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)],
    "date": [date(2026, 1, 1), None],
}


@pytest.mark.parametrize("kind", SAME)
def test_every_type_of_fixed_width_comes_back_as_it_went_in(engine: WasmEngine, kind: str) -> None:
    copy = function(
        "f",
        "(memory.copy (local.get $out) (local.get $in) (i32.load offset=36 (local.get $batch))) (i32.const 0)",
    )
    same = loaded(engine, module(copy), f"f(x {kind}) -> {kind}")
    given = column(SAME[kind], check_module(engine, module(copy), [f"f(x {kind}) -> {kind}"])[0].result)
    assert same([given]).equals(given)
    assert same([given.slice(1)]).equals(given.slice(1))


def test_text_comes_back_as_it_went_in(engine: WasmEngine) -> None:
    # The result's values are the argument's own; its offsets are copied.
    copy = function(
        "f",
        """(i32.store offset=8 (local.get $batch) (local.get $in))
        (memory.copy (i32.load offset=12 (local.get $batch)) (i32.load offset=28 (local.get $batch))
          (i32.shl (i32.add (local.get $rows) (i32.const 1)) (i32.const 2)))
        (i32.const 0)""",
    )
    texts = ["a", "", "größer", None, "x" * 1000]
    for kind, values in (("string", texts), ("binary", [None if each is None else each.encode() for each in texts])):
        same = loaded(engine, module(copy), f"f(x {kind}) -> {kind}")
        given = column(values)
        assert same([given]).equals(given)
        assert same([given.slice(2, 2)]).equals(given.slice(2, 2))
        assert same([column([], given.type)]).to_pylist() == []
        assert same([column(["", None], given.type)]).to_pylist() == [given[1].as_py(), None]


def test_an_aggregate_makes_one_value_of_each_group(engine: WasmEngine) -> None:
    found = loaded(engine, spread(), SPREAD_OF)
    groups: list[list[float | None] | None] = [[1.0, 5.0, None, 2.0], [], None, [None], [7.0]]
    lists = pa.chunked_array([pa.array(groups, pa.list_(pa.float64()))])
    assert found([lists]).to_pylist() == [4.0, None, None, None, 0.0]
    assert found([lists.slice(1, 4)]).to_pylist() == [None, None, None, 0.0]
    many = pa.chunked_array([pa.array([[float(n) for n in range(100_000)], [3.0] * 50_000, [1.5, 2.5]])])
    assert found([many]).to_pylist() == [99_999.0, 0.0, 1.0]


MISBEHAVING = {
    "traps": (function("score", "unreachable"), "unreachable` instruction executed, in a batch of 3 rows"),
    "divides by zero": (
        function("score", "(i32.div_u (local.get $rows) (i32.const 0))"),
        "integer divide by zero, in a batch of 3 rows",
    ),
    "reads outside": (
        function("score", "(i32.load (i32.const 0x7fffffff))"),
        "out of bounds memory access, in a batch of 3 rows",
    ),
    "recurses": ('(func $f (export "score") (param i32) (result i32) (call $f (i32.const 1)))', "call stack exhausted"),
    "never ends": (ENDLESS, "it was stopped: it used all its instructions for a batch of 3 rows"),
    "points outside": (
        function("score", "(i32.store offset=8 (local.get $batch) (i32.const 0x7ffffff0)) (i32.const 0)"),
        "the values of its result, at 2147483632 with 24 bytes, points outside of its memory",
    ),
    "points outside for nulls": (
        function("score", "(i32.store offset=16 (local.get $batch) (i32.const -1)) (i32.const 0)"),
        "the validity of its result, at 4294967295 with 1 bytes, points outside of its memory",
    ),
    "refuses": (function("score", "(i32.const 64)"), "failed: too cold for this"),
    "refuses without a reason": (function("score", "(i32.const 128)"), "failed: it gives no reason"),
    "returns nonsense": (function("score", "(i32.const -1)"), "it returned 4294967295, neither 0 nor the address"),
}


@pytest.mark.parametrize("what", MISBEHAVING)
def test_a_module_that_misbehaves_gets_one_clear_error(engine: WasmEngine, what: str) -> None:
    body, said = MISBEHAVING[what]
    bad = loaded(engine, module(body, more='(data (i32.const 64) "too\\n\\1b cold for this\\00")'), SCORE)
    with pytest.raises(ModuleFailed) as failed:
        bad([column([1.0, 2.0, 3.0])])
    assert said in str(failed.value) and failed.value.function == "score"
    assert "\n" not in str(failed.value) and "\x1b" not in str(failed.value)
    assert loaded(engine, heat(), SCORE)([column([0.0])]).to_pylist() == [32.0]  # its neighbours are unharmed


def test_an_instance_is_not_used_again_after_an_error(engine: WasmEngine) -> None:
    # It counts its calls in its memory, and traps in the second.
    counts = function(
        "f",
        """(i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 1)))
        (if (i32.eq (i32.load (i32.const 8)) (i32.const 2)) (then unreachable))
        (i32.store8 (local.get $out) (i32.load (i32.const 8))) (i32.const 0)""",
    )
    counting, one = loaded(engine, module(counts), "f(x int8) -> int8"), column([0], pa.int8())
    assert counting([one]).to_pylist() == [1]
    with pytest.raises(ModuleFailed):
        counting([one])
    assert counting([one]).to_pylist() == [1]


def test_time_ends_what_has_instructions_left(engine: WasmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MODULE_CALL_INSTRUCTIONS", 1 << 50)
    monkeypatch.setattr("anabranch.wasm.instance.CALL_TICKS", 2)
    with pytest.raises(ModuleFailed, match="it was stopped: it took longer than 5 s for a batch of 1 rows"):
        loaded(engine, module(ENDLESS), SCORE)([column([1.0])])


def test_memory_ends_at_its_limit(engine: WasmEngine) -> None:
    greedy = function("score", "(loop $l (drop (memory.grow (i32.const 16))) (br $l)) (i32.const 0)")
    with pytest.raises(ModuleFailed, match="used all its instructions"):
        loaded(engine, module(greedy), SCORE)([column([1.0])])
    grows = function(
        "score", "(if (i32.eq (memory.grow (i32.const 1024)) (i32.const -1)) (then unreachable)) (i32.const 0)"
    )
    with pytest.raises(ModuleFailed, match=r"its memory was 0.1 of at most 64 MiB"):
        loaded(engine, module(grows), SCORE)([column([1.0])])
    fills = function(
        "score", "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable (i32.const 0)"
    )
    with pytest.raises(ModuleFailed, match=r"its memory was 64.0 of at most 64 MiB"):
        loaded(engine, module(fills), SCORE)([column([1.0])])
    with pytest.raises(ModuleFailed, match="memory minimum size of 2000 pages exceeds memory limits, in starting it"):
        loaded(engine, module(FAHRENHEIT, memory='(memory (export "memory") 2000)'), SCORE)([column([1.0])])
    lies = '(func (export "alloc") (param i32) (result i32) (i32.const 65536))'
    with pytest.raises(ModuleFailed, match=r"alloc\(64\) returned 65536, which points outside of its memory"):
        loaded(engine, module(FAHRENHEIT, alloc=lies), SCORE)([column([1.0])])
    nothing = '(func (export "alloc") (param i32) (result i32) (i32.const 0))'
    with pytest.raises(ModuleFailed, match=r"alloc\(64\) returned 0"):
        loaded(engine, module(FAHRENHEIT, alloc=nothing), SCORE)([column([1.0])])


def test_what_a_module_does_when_it_starts_is_limited_too(engine: WasmEngine) -> None:
    starts = "(func $start (loop $l (br $l))) (start $start)"
    with pytest.raises(ModuleFailed, match="used all its instructions for starting it"):
        loaded(engine, module(FAHRENHEIT, more=starts), SCORE)([column([1.0])])


def test_offsets_and_text_that_make_no_column_are_refused(engine: WasmEngine) -> None:
    falls = function("f", "(i32.store (i32.load offset=12 (local.get $batch)) (i32.const 9)) (i32.const 0)")
    with pytest.raises(ModuleFailed, match="its result is not a column of string"):
        loaded(engine, module(falls), "f(x int8) -> string")([column([1], pa.int8())])
    bytes_ = function(
        "f",
        """(i32.store offset=8 (local.get $batch) (i32.const 64))
        (i32.store offset=4 (i32.load offset=12 (local.get $batch)) (i32.const 2)) (i32.const 0)""",
    )
    wrong = module(bytes_, more='(data (i32.const 64) "\\ff\\fe")')
    with pytest.raises(ModuleFailed, match="UTF"):
        loaded(engine, wrong, "f(x int8) -> string")([column([1], pa.int8())])
    assert loaded(engine, wrong, "f(x int8) -> binary")([column([1], pa.int8())]).to_pylist() == [b"\xff\xfe"]


def test_an_aggregate_has_three_exports(engine: WasmEngine) -> None:
    with pytest.raises(
        InvalidArgument, match="does not export the function 'score_begin', which takes a number of groups"
    ):
        check_module(engine, heat(), ["aggregate score(celsius double) -> double"])
    with pytest.raises(InvalidArgument, match="does not export the function 'spread'"):
        check_module(engine, spread(), ["spread(celsius double) -> double"])


REFUSED = {
    "no module": (b"hello", "does not begin with the bytes 00 61 73 6d"),
    "nothing": (b"", "does not begin with the bytes"),
    "half a module": (heat()[:100], "this is not a valid WebAssembly module"),
    "garbage behind the magic": (b"\0asm" + bytes(range(100)), "this is not a valid WebAssembly module"),
    "too large": (b"\0asm" + bytes(1 << 20), "at most 1,048,576 bytes"),
    "50 MB of garbage": (b"\0asm" + bytes(50 << 20), "at most 1,048,576 bytes, got 52,428,804"),
    "a section longer than the module": (b"\0asm\1\0\0\0\x0a\xff\xff\x03", "a section is longer than the module"),
    "a number without an end": (b"\0asm\1\0\0\0\x0a" + b"\xff" * 9, "it ends within a section's head"),
    "a function that takes minutes to compile": (
        module(function("score", "(if (i32.const 0) (then " * 30_000 + "))" * 30_000 + "(i32.const 0)")),
        "expected functions of at most 131,072 bytes in a module, got one of 150,0",
    ),
    "imports": (module(FAHRENHEIT, memory='(import "env" "read" (func)) (memory (export "memory") 1)'), "imports env.read"),
    "no memory": (module(FAHRENHEIT, memory="(memory 1)"), "does not export its memory"),
    "memory is a function": (module(FAHRENHEIT, memory='(memory 1) (func (export "memory"))'), "does not export its memory"),
    "no alloc": (module(FAHRENHEIT, alloc=""), "does not export the function 'alloc'"),
    "no score": (module(alloc='(func (export "alloc") (param i32) (result i32) (i32.const 8))'), "does not export the function 'score'"),
    "another score": (
        module('(func (export "score") (param f64) (result f64) (local.get 0))'),
        "the module's function 'score' is (f64) -> (f64), but takes the address of a batch and returns 0: (i32) -> (i32)",
    ),
    "score is a global": (module('(global (export "score") i32 (i32.const 1))'), "is not a function"),
    "threads": (module(FAHRENHEIT, memory='(memory (export "memory") 1 1 shared)'), "threads must be enabled"),
    "64 bits": (module(FAHRENHEIT, memory='(memory (export "memory") i64 1)', alloc=""), "memory64"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_such_module_is_refused(engine: WasmEngine, what: str) -> None:
    code, said = REFUSED[what]
    with pytest.raises(InvalidArgument) as refused:
        check_module(engine, code, [SCORE])
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_module_may_name_its_functions_itself(engine: WasmEngine) -> None:
    own = f'(@custom "other" "x") (@custom "anabranch" "{SCORE}\\n\\n{IS_HOT}")'
    code = module(FAHRENHEIT, more=own + each_row("hot", "", into=1))
    assert [str(each) for each in check_module(engine, code)] == [SCORE, IS_HOT]
    assert [str(each) for each in check_module(engine, code, [IS_HOT])] == [IS_HOT]
    with pytest.raises(InvalidArgument, match="signatures of the module's functions are missing"):
        check_module(engine, heat())
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        check_module(engine, module(FAHRENHEIT, more='(@custom "anabranch" "\\ff")'))


def test_closing_the_engine_ends_its_calls(engine: WasmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MODULE_CALL_INSTRUCTIONS", 1 << 50)
    tasks, errors = ThreadTasks(), []
    endless = loaded(engine, module(ENDLESS), SCORE)

    def call() -> None:
        try:
            endless([column([1.0])])
        except Closed as exc:
            errors.append(exc)

    task = tasks.spawn("call", call)
    while endless._used == 0:
        time.sleep(0.001)
    time.sleep(0.05)
    engine.close()
    assert task.join(60) and len(errors) == 1


def test_a_module_answers_while_its_neighbour_of_the_same_engine_never_ends(
    engine: WasmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MODULE_CALL_INSTRUCTIONS", 1 << 50)
    for module_name in ("instance", "engine"):
        monkeypatch.setattr(f"anabranch.wasm.{module_name}.CALL_TICKS", 10_000)
    tasks, failed = ThreadTasks(), []
    score, endless = loaded(engine, heat(), SCORE), loaded(engine, module(ENDLESS), SCORE)

    def call() -> None:
        try:
            endless([column([1.0])])
        except Closed as exc:
            failed.append(exc)

    calls = [tasks.spawn("call", call) for _ in range(2)]
    while endless._used < len(calls):
        time.sleep(0.001)
    rows = limits.MODULE_ROWS_MAX * 3
    for _ in range(20):
        assert score([column([0.0] * rows)]).to_pylist() == [32.0] * rows
    assert not failed and endless._used == len(calls)
    engine.close()
    assert all(each.join(60) for each in calls) and len(failed) == len(calls)


def test_calls_run_side_by_side_each_in_its_own_instance(engine: WasmEngine) -> None:
    # It adds to a number in its memory, so two calls in one instance at once would spoil each other's results.
    counts = each_row(
        "f",
        """(i64.store (i32.const 8) (i64.load (local.get $in)))
        (i64.store (local.get $out) (i64.load (i32.const 8)))""",
        into=8,
    )
    same, tasks, wrong = loaded(engine, module(counts), "f(x int64) -> int64"), ThreadTasks(), []

    def call(first: int) -> None:
        for _ in range(5):
            given = column(list(range(first, first + 50_000)), pa.int64())
            if not same([given]).equals(given):
                wrong.append(first)

    started = [tasks.spawn("call", partial(call, first)) for first in range(12)]
    assert all(task.join(60) for task in started) and not wrong
