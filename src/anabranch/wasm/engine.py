"""The engine that compiles modules and keeps the time of calls: one for each owner, so that stopping its calls stops no
one else's."""

from __future__ import annotations

import re
from math import ceil
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.runtime.tasks import Tasks
from anabranch.wasm.sections import largest_function

with optional("running WebAssembly modules", "wasm"):
    import wasmtime

_NUMBERED: Final = re.compile(r"^\d+: ")
CALL_TICKS: Final = ceil(limits.MODULE_CALL_S_MAX / limits.MODULE_TICK_S)


def _config() -> wasmtime.Config:
    """Plain WebAssembly 2.0 with SIMD. What could take memory that is not counted (threads, garbage-collected objects,
    further memories) is off."""
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.wasm_threads = False
    config.shared_memory = False
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    config.wasm_gc = False
    config.wasm_function_references = False
    config.wasm_exceptions = False
    config.wasm_stack_switching = False
    config.wasm_relaxed_simd = False
    config.parallel_compilation = False  # on one processor, so that a large module leaves the others
    return config


class WasmEngine:
    """Compiles modules, and interrupts calls that take too long. Thread-safe. Close it."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.engine = wasmtime.Engine(_config())
        self._changed = tasks.condition()
        self._calls = 0  # begun so far
        self._ticking = False
        self.closed = False

    def compile(self, code: bytes) -> wasmtime.Module:
        """The module of these bytes. Raises InvalidArgument."""
        if len(code) > limits.MODULE_BYTES_MAX:
            raise InvalidArgument(f"expected a module of at most {limits.MODULE_BYTES_MAX:,} bytes, got {len(code):,}")
        if code[:4] != b"\0asm":
            raise InvalidArgument("this is not a WebAssembly module: it does not begin with the bytes 00 61 73 6d")
        # The time to compile a function rises with the square of its nesting.
        if (longest := largest_function(code)) > limits.MODULE_FUNCTION_BYTES_MAX:
            raise InvalidArgument(
                f"expected functions of at most {limits.MODULE_FUNCTION_BYTES_MAX:,} bytes in a module, got one of {longest:,}"
            )
        try:
            return wasmtime.Module(self.engine, code)
        except wasmtime.WasmtimeError as exc:
            raise InvalidArgument(f"this is not a valid WebAssembly module: {one_line(str(exc))}") from exc

    def begin_call(self) -> None:
        """Keep time from now on: a store's epoch deadline of `CALL_TICKS` is `limits.MODULE_CALL_S_MAX` away."""
        self._calls += 1
        if not self._ticking:
            with self._changed:
                if not self._ticking and not self.closed:
                    self._ticking = True
                    self.tasks.spawn("wasm-time", self._tick)

    def interrupt(self) -> None:
        """Interrupt the calls under way."""
        for _ in range(CALL_TICKS + 1):
            self.engine.increment_epoch()

    def close(self) -> None:
        """Interrupt the calls under way, and keep time no more. A second call is harmless."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self.interrupt()

    def _tick(self) -> None:
        seen, idle_s = self._calls, 0.0
        while True:
            with self._changed:
                if self.closed or idle_s >= limits.MODULE_IDLE_S:
                    self._ticking = False
                    return
                self._changed.wait(limits.MODULE_TICK_S)
            self.engine.increment_epoch()
            idle_s = idle_s + limits.MODULE_TICK_S if seen == self._calls else 0.0
            seen = self._calls


def one_line(text: str) -> str:
    """The innermost cause that wasmtime names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _NUMBERED.sub("", lines[-1]) if lines else text
