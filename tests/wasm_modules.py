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


# The largest less the smallest value of each group; a group's state is two f64 from address 32768 on.
SPREAD = (
    """
  (func (export "spread_begin") (param $groups i32) (result i32) (local $at i32)
    (local.set $at (i32.const 32768))
    (block $done
      (loop $group
        (br_if $done (i32.eqz (local.get $groups)))
        (f64.store (local.get $at) (f64.const inf))
        (f64.store offset=8 (local.get $at) (f64.const -inf))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (local.set $groups (i32.sub (local.get $groups) (i32.const 1)))
        (br $group)))
    (i32.const 0))
"""
    + each_row(
        "spread_update",
        """
        (local.set $x (i32.add (i32.const 32768) (i32.shl (i32.load (local.get $in2)) (i32.const 4))))
        (f64.store (local.get $x) (f64.min (f64.load (local.get $x)) (f64.load (local.get $in))))
        (f64.store offset=8 (local.get $x) (f64.max (f64.load offset=8 (local.get $x)) (f64.load (local.get $in))))""",
        into=0,
        size2=4,
    )
    + each_row(
        "spread_finish",
        """
        (local.set $x (i32.add (i32.const 32768) (i32.shl (local.get $n) (i32.const 4))))
        (if (f64.gt (f64.load (local.get $x)) (f64.load offset=8 (local.get $x)))
          (then
            (local.set $y (i32.add (i32.load offset=16 (local.get $batch)) (i32.shr_u (local.get $n) (i32.const 3))))
            (i32.store8 (local.get $y)
              (i32.xor (i32.load8_u (local.get $y)) (i32.shl (i32.const 1) (i32.and (local.get $n) (i32.const 7)))))))
        (f64.store (local.get $out) (f64.sub (f64.load offset=8 (local.get $x)) (f64.load (local.get $x))))""",
        into=8,
    )
)
SPREAD_OF = "aggregate spread(celsius double) -> double"


def spread() -> bytes:
    """A module with the aggregate `spread`, of at most 6,000 groups at a time: its buffers begin above their states."""
    return module(SPREAD, memory='(memory (export "memory") 4)', alloc=ALLOC.replace("1024", "131072"))


# Rows with a number above 2, with the double of it; at the end how many rows there were in all.
OVER = (
    "(global $seen (mut i32) (i32.const 0))"
    + function(
        "over",
        """
    (global.set $seen (i32.add (global.get $seen) (local.get $rows)))
    (block $done
      (loop $row
        (br_if $done (i32.ge_u (local.get $n) (local.get $rows)))
        (if (i64.gt_s (i64.load (local.get $in)) (i64.const 2))
          (then
            (i64.store offset=0x100000 (local.get $x) (i64.load (local.get $in)))
            (f64.store offset=0x200000 (local.get $x) (f64.convert_i64_s (i64.shl (i64.load (local.get $in)) (i64.const 1))))
            (local.set $x (i32.add (local.get $x) (i32.const 8)))))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (local.set $in (i32.add (local.get $in) (i32.const 8)))
        (br $row)))
    (i32.store (local.get $out) (i32.const 0x100000))
    (i32.store offset=16 (local.get $out) (i32.const 0x200000))
    (i32.store offset=20 (local.get $batch) (i32.shr_u (local.get $x) (i32.const 3)))
    (i32.const 0)""",
    )
    + function(
        "over_end",
        """
    (i64.store (i32.const 0x100000) (i64.extend_i32_u (global.get $seen)))
    (i32.store (local.get $out) (i32.const 0x100000))
    (i32.store offset=16 (local.get $out) (i32.const 0x200000))
    (i32.store offset=24 (local.get $out) (i32.const 0x2fff00)) ;; its validity: no bit is set, so it is null
    (i32.store offset=20 (local.get $batch) (i32.const 1))
    (i32.const 0)""",
    )
)
OVER_OF = "over(n int64) -> table (n int64, twice double)"
# The column as it is: the result lies where the argument does.
ECHO = function(
    "echo",
    """
    (i32.store (local.get $out) (local.get $in))
    (i32.store offset=4 (local.get $out) (i32.load offset=28 (local.get $batch)))
    (i32.store offset=8 (local.get $out) (i32.load offset=32 (local.get $batch)))
    (i32.store offset=20 (local.get $batch) (local.get $rows))
    (i32.const 0)""",
)


def over() -> bytes:
    """A module with `over` and `echo`, which return tables."""
    memory, alloc = '(memory (export "memory") 64)', ALLOC.replace("1024", "3145728")
    return module(OVER, ECHO, memory=memory, alloc=alloc)
