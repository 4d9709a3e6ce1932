"""WebAssembly modules for tests, written as text: the usual memory and `alloc`, and functions by their bodies."""

from __future__ import annotations

import wasmtime

ALLOC = """
  (global $top (mut i32) (i32.const 1024))
  (func (export "alloc") (param $bytes i32) (result i32) (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
    (global.set $top (i32.add (local.get $at) (local.get $bytes)))
    (block $enough
      (loop $grow
        (br_if $enough (i32.le_u (global.get $top) (i32.shl (memory.size) (i32.const 16))))
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (br $grow)))
    (local.get $at))
"""
MEMORY = '(memory (export "memory") 1)'
LOCALS = (
    "(local $rows i32) (local $out i32) (local $in i32) (local $in2 i32) (local $n i32) (local $x i32) (local $y i32)"
)
START = """
    (local.set $rows (i32.load (local.get $batch)))
    (local.set $out (i32.load offset=8 (local.get $batch)))
    (local.set $in (i32.load offset=24 (local.get $batch)))
    (local.set $in2 (i32.load offset=40 (local.get $batch)))
"""


def module(*functions: str, more: str = "", memory: str = MEMORY, alloc: str = ALLOC) -> bytes:
    """A module of these functions; `more` are other fields of it."""
    return bytes(wasmtime.wat2wasm(f"(module {memory} {alloc} {more} {' '.join(functions)})"))


def function(name: str, body: str) -> str:
    """A function of a batch; `body` leaves its result."""
    return f'(func (export "{name}") (param $batch i32) (result i32) {LOCALS} {START} {body})'


def each_row(name: str, store: str, *, into: int, size: int = 8, size2: int = 8) -> str:
    """A function that stores something for each row: values of `into` bytes, from arguments of `size` and `size2`
    bytes at $in and $in2."""
    return function(
        name,
        f"""
    (block $done
      (loop $row
        (br_if $done (i32.ge_u (local.get $n) (local.get $rows)))
        {store}
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (local.set $out (i32.add (local.get $out) (i32.const {into})))
        (local.set $in (i32.add (local.get $in) (i32.const {size})))
        (local.set $in2 (i32.add (local.get $in2) (i32.const {size2})))
        (br $row)))
    (i32.const 0)""",
    )


FAHRENHEIT = each_row(
    "score",
    "(f64.store (local.get $out) (f64.add (f64.mul (f64.load (local.get $in)) (f64.const 1.8)) (f64.const 32)))",
    into=8,
)
HOT = each_row("hot", "(i32.store8 (local.get $out) (f64.gt (f64.load (local.get $in)) (f64.const 2)))", into=1)
SCORE = "score(celsius double) -> double"
IS_HOT = "hot(celsius double) -> boolean"
ENDLESS = function("score", "(loop $for_ever (br $for_ever)) (i32.const 0)")


def heat() -> bytes:
    """A module with `score`, which turns Celsius into Fahrenheit, and `hot`, which is true above 2."""
    return module(FAHRENHEIT, HOT)
