"""One instance of a module: its memory, and calls of its functions. docs/reference/wasm-abi.md specifies the layout."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.errors import ModuleFailed
from anabranch.errors.optional import optional
from anabranch.wasm.calls import BatchFunction, LinearMemory
from anabranch.wasm.columns import Laid, both, lay_out, taken, width_of
from anabranch.wasm.engine import CALL_TICKS, WasmEngine, one_line

with optional("running WebAssembly modules", "wasm"):
    import wasmtime

_BATCH: Final = "batch"
_COLUMN_BYTES: Final = 16
_HEAD_BYTES: Final = 8
_ROOM_MIN: Final = 64
_MIB: Final = 1 << 20
_OUTSIDE: Final = "points outside of its memory"


class _HeldBuffer(NamedTuple):
    address: int
    size: int


class WasmInstance:
    """An instance of a module, for one call at a time. After an error it must not be used again."""

    def __init__(self, engine: WasmEngine, module: wasmtime.Module, name: str) -> None:
        """`name` is that of the function in messages. Runs the module's start function. Raises ModuleFailed."""
        self._engine = engine
        self._name = name
        self._store = wasmtime.Store(engine.engine)
        self._store.set_limits(
            memory_size=limits.MODULE_MEMORY_BYTES_MAX,
            table_elements=limits.MODULE_TABLE_ELEMENTS_MAX,
            instances=1,
            tables=4,
            memories=1,
        )
        self._places: dict[str, _HeldBuffer] = {}
        self._allow()
        try:
            exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        except (wasmtime.WasmtimeError, wasmtime.Trap) as exc:
            raise self._failed(exc, "starting it") from exc
        memory, alloc, free = exports["memory"], exports["alloc"], exports.get("free")
        assert isinstance(memory, wasmtime.Memory), "checked when it was added"
        assert isinstance(alloc, wasmtime.Func), "checked when it was added"
        assert free is None or isinstance(free, wasmtime.Func), "checked when it was added"
        self._memory = LinearMemory(self._store, memory)
        self._alloc, self._free = BatchFunction(self._store, alloc), free
        self._exports = exports
        self._functions: dict[str, BatchFunction] = {}

    def call(
        self, export: str, rows: int, arguments: Sequence[pa.Array], result: pa.DataType | None = None
    ) -> pa.Array | None:
        """Call a function with a batch of these columns, and return its result column, if it has one. The result is null
        where an argument is. Raises ModuleFailed."""
        if not rows and result is not None:
            return pa.array([], result)
        laid = [lay_out(column) for column in arguments]
        batch = self._put_batch(rows, laid, self._result_room(rows, result))
        self._invoke(export, rows, batch)
        if result is None:
            return None
        nulls = reduce(both, (each.validity for each in laid), None)
        return self._taken(rows, result, batch + _HEAD_BYTES, nulls)

    def call_table(
        self, export: str, rows: int, arguments: Sequence[pa.Array], schema: pa.Schema, *, work: int = 0
    ) -> pa.RecordBatch:
        """Call a function with a batch of these columns, and return the rows that it makes of them, any number. It may execute
        instructions for `work` rows more than it is given. Raises ModuleFailed."""
        laid = [lay_out(column) for column in arguments]
        columns_at = self._stored("result columns", bytes(len(schema) * _COLUMN_BYTES))
        batch = self._put_batch(rows, laid, (columns_at, 0, 0, 0))
        self._invoke(export, rows + work, batch)
        *_, made = self._column(batch + _HEAD_BYTES)
        if made > limits.MODULE_TABLE_ROWS_MAX:
            raise ModuleFailed(
                self._name, f"it returned {made:,} rows at once, over the limit of {limits.MODULE_TABLE_ROWS_MAX:,}"
            )
        found: list[pa.Array] = []
        for number, field in enumerate(schema):
            column_at = columns_at + number * _COLUMN_BYTES
            values_at, offsets_at, *_ = self._column(column_at)
            if made and not (values_at if width_of(field.type) else offsets_at):
                missing = "values" if width_of(field.type) else "offsets"
                raise ModuleFailed(
                    self._name, f"it returned {made:,} rows without {missing} for the column '{field.name}'"
                )
            found.append(self._taken(made, field.type, column_at, None))
            # Columns may lie one over another in the module's memory, but not here.
            if sum(column.nbytes for column in found) > limits.MODULE_MEMORY_BYTES_MAX:
                raise ModuleFailed(
                    self._name, f"it returned more than {limits.MODULE_MEMORY_BYTES_MAX // _MIB} MiB at once"
                )
        return pa.RecordBatch.from_arrays(found, schema=schema)

    def invoke(self, export: str, value: int) -> None:
        """Call a function of one number that returns 0, or the address of a message. Raises ModuleFailed."""
        self._invoke(export, 0, value)

    # calls

    def _allow(self) -> None:
        """Allow one call that has no rows."""
        self._store.set_fuel(limits.MODULE_CALL_INSTRUCTIONS)
        self._store.set_epoch_deadline(CALL_TICKS)
        self._engine.begin_call()

    def _invoke(self, export: str, rows: int, value: int) -> None:
        function = self._functions.get(export)
        if function is None:
            exported = self._exports[export]
            assert isinstance(exported, wasmtime.Func), "checked when it was added"
            function = self._functions[export] = BatchFunction(self._store, exported)
        message = self._run(function, value, rows, f"a batch of {rows:,} rows" if rows else export)
        if message:
            raise ModuleFailed(self._name, self._text(message))

    def _run(self, function: BatchFunction, value: int, rows: int, doing: str) -> int:
        self._engine.begin_call()
        instructions = limits.MODULE_CALL_INSTRUCTIONS + rows * limits.MODULE_ROW_INSTRUCTIONS
        try:
            return function(value, instructions=instructions, ticks=CALL_TICKS)
        except (wasmtime.WasmtimeError, wasmtime.Trap) as exc:
            raise self._failed(exc, doing) from exc
        finally:
            self._memory.refresh()

    def _failed(self, exc: Exception, doing: str) -> ModuleFailed:
        code = exc.trap_code if isinstance(exc, wasmtime.Trap) else None
        codes = wasmtime.TrapCode
        if code == codes.OUT_OF_FUEL:
            return ModuleFailed(self._name, f"it was stopped: it used all its instructions for {doing}")
        if code == codes.INTERRUPT:
            return ModuleFailed(
                self._name, f"it was stopped: it took longer than {limits.MODULE_CALL_S_MAX:g} s for {doing}"
            )
        reason = one_line(str(exc)).removeprefix("wasm trap: ")
        return ModuleFailed(self._name, f"{reason}, in {doing}{self._memory_use()}")

    def _memory_use(self) -> str:
        memory = getattr(self, "_memory", None)
        if memory is None:
            return ""
        memory.refresh()  # the call that failed may have grown it
        used = memory.size / _MIB
        return f" (its memory was {used:.1f} of at most {limits.MODULE_MEMORY_BYTES_MAX // _MIB} MiB)"

    # memory

    def _room(self, slot: str, size: int) -> int:
        """The address of at least `size` bytes, kept for the next call."""
        held = self._places.get(slot)
        if held is not None and held.size >= size:
            return held.address
        if held is not None and self._free is not None:
            self._allow()
            try:
                self._free(self._store, held.address, held.size)
            except (wasmtime.WasmtimeError, wasmtime.Trap) as exc:
                raise self._failed(exc, "free") from exc
            finally:
                self._memory.refresh()
        wanted = max(_ROOM_MIN, 1 << (size - 1).bit_length())
        address = self._run(self._alloc, wanted, 0, f"alloc({wanted})")
        if not address or address + wanted > self._memory.size:
            raise ModuleFailed(self._name, f"alloc({wanted}) returned {address}, which {_OUTSIDE}{self._memory_use()}")
        self._places[slot] = _HeldBuffer(address, wanted)
        return address

    def _stored(self, slot: str, data: bytes | pa.Buffer | None) -> int:
        """Put bytes into memory that is kept for the next call, and return their address; 0 for None."""
        if data is None:
            return 0
        size = data.size if isinstance(data, pa.Buffer) else len(data)
        address = self._room(slot, size)
        source = data.address if isinstance(data, pa.Buffer) else data
        if size:
            ctypes.memmove(self._memory.base + address, source, size)
        return address

    def _put_batch(self, rows: int, laid: Sequence[Laid], result: tuple[int, int, int, int]) -> int:
        """The address of a batch with these arguments, which are put into memory too."""
        head = [rows, len(laid), *result]
        for number, each in enumerate(laid):
            parts = (("values", each.values), ("offsets", each.offsets), ("validity", each.validity))
            head += [self._stored(f"argument {number} {name}", part) for name, part in parts]
            head.append(each.values.size if isinstance(each.values, pa.Buffer) else len(each.values))
        return self._stored(_BATCH, struct.pack(f"<{len(head)}I", *head))

    def _result_room(self, rows: int, result: pa.DataType | None) -> tuple[int, int, int, int]:
        if result is None:
            return 0, 0, 0, 0
        validity = self._stored("result validity", b"\xff" * -(-rows // 8))
        if size := rows * width_of(result):
            return self._room("result values", size), 0, validity, size
        return 0, self._stored("result offsets", bytes((rows + 1) * 4)), validity, 0

    def _column(self, address: int) -> tuple[int, int, int, int]:
        """The addresses of its values, offsets and validity, and its size."""
        found: tuple[int, int, int, int] = struct.unpack("<4I", self._read(address, _COLUMN_BYTES, "its result"))
        return found

    def _taken(self, rows: int, result: pa.DataType, column: int, nulls: bytes | None) -> pa.Array:
        """The column that a function has written, by the address of its description."""
        if not rows:
            return pa.array([], result)
        at, offsets_at, validity_at, _ = self._column(column)
        valid = self._read(validity_at, -(-rows // 8), "the validity of its result") if validity_at else None
        if valid is not None and valid.count(0xFF) == len(valid):
            valid = None
        offsets = None
        size = rows * width_of(result)
        if not size:
            offsets = self._read(offsets_at, (rows + 1) * 4, "the offsets of its result")
            size = struct.unpack_from("<I", offsets, rows * 4)[0]
        values = self._read(at, size, "the values of its result")
        try:
            return taken(result, rows, values, offsets, both(valid, nulls))
        except (ValueError, pa.ArrowInvalid) as exc:
            raise ModuleFailed(self._name, f"its result is not a column of {result}: {exc}") from exc

    def _read(self, address: int, size: int, what: str) -> bytes:
        if address + size > self._memory.size:
            raise ModuleFailed(self._name, f"{what}, at {address} with {size:,} bytes, {_OUTSIDE}{self._memory_use()}")
        return ctypes.string_at(self._memory.base + address, size)

    def _text(self, address: int) -> str:
        left = self._memory.size - address
        if left <= 0:
            return f"it returned {address}, neither 0 nor the address of a message in its memory"
        data = self._read(address, min(left, limits.MODULE_MESSAGE_BYTES_MAX), "its message")
        text = data.partition(b"\0")[0].decode("utf-8", "replace")
        return " ".join("".join(each if each.isprintable() else " " for each in text).split()) or "it gives no reason"
