"""Calls of an instance by wasmtime's C API, which take a third of the time that `wasmtime.Func` and `wasmtime.Memory` do.

Only a call of the module's own code lets other Python threads run meanwhile. The rest takes less time than handing over
the interpreter would.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from anabranch.errors.optional import optional

with optional("running WebAssembly modules", "wasm"):
    import wasmtime
    from wasmtime import _ffi as c

_QUICK: Final = ctypes.PyDLL(str(c.filename))  # the library that is loaded already


def _quick(name: str) -> Any:
    function, known = getattr(_QUICK, name), getattr(c.dll, name)
    function.restype, function.argtypes = known.restype, known.argtypes
    return function


_set_fuel: Final = _quick("wasmtime_context_set_fuel")
_set_deadline: Final = _quick("wasmtime_context_set_epoch_deadline")
_data: Final = _quick("wasmtime_memory_data")
_data_size: Final = _quick("wasmtime_memory_data_size")
_call: Final[Any] = c.dll.wasmtime_func_call


class BatchFunction:
    """An exported function of one i32 that returns one."""

    def __init__(self, store: wasmtime.Store, function: wasmtime.Func) -> None:
        self._store = store  # keeps the context alive
        self._context = store._context()
        self._function = ctypes.byref(function._func)
        self._argument = (c.wasmtime_val_t * 1)()
        self._argument[0].kind = c.WASMTIME_I32
        self._result = (c.wasmtime_val_t * 1)()

    def __call__(self, value: int, *, instructions: int, ticks: int) -> int:
        """The result, without a sign. Raises wasmtime.Trap and wasmtime.WasmtimeError."""
        _set_fuel(self._context, instructions)
        _set_deadline(self._context, ticks)
        self._argument[0].of.i32 = value
        trap = ctypes.POINTER(c.wasm_trap_t)()
        error = _call(self._context, self._function, self._argument, 1, self._result, 1, ctypes.byref(trap))
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        if trap:
            raise wasmtime.Trap._from_ptr(trap)
        result: int = self._result[0].of.i32
        return result & 0xFFFF_FFFF


class LinearMemory:
    """An instance's memory. `base` and `size` are as of the last `refresh`, which each call of the module's code makes
    necessary."""

    def __init__(self, store: wasmtime.Store, memory: wasmtime.Memory) -> None:
        self._context = store._context()
        self._memory = ctypes.byref(memory._memory)
        self.base = 0
        self.size = 0
        self.refresh()

    def refresh(self) -> None:
        """Find out where the memory is now, and how large."""
        self.base = ctypes.addressof(_data(self._context, self._memory).contents)
        self.size = int(_data_size(self._context, self._memory))
