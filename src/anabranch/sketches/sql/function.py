"""A function of SQL over columns of sketches, and the functions with given names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from anabranch.errors import InvalidArgument

__all__ = ["BOUNDS", "Gathered", "SketchFunction", "bounds", "called_functions", "counted"]


BOUNDS = pa.struct([pa.field("lower", pa.float64()), pa.field("upper", pa.float64())])

Gathered: TypeAlias = Literal["all", "distinct", "counts"]

# The first words of a function's name, and the module here that has it: loaded only when it is needed, because some need an
# optional package.
_MODULES: Final = {
    "hll_": "distinct",
    "theta_": "distinct",
    "kll_": "kll",
    "count_min_": "frequencies",
    "bloom_": "frequencies",
    "approx_top_k_": "top_k",
}


@dataclass(frozen=True, slots=True)
class SketchFunction:
    """A function of one row's values, or an aggregate.

    Where an argument is null the result is null. An aggregate's first argument is the list of `all` values of a group,
    of its `distinct` values, or their `counts` as pairs; without any it is empty. Arguments that are left out have
    their defaults."""

    name: str
    call: Callable[..., object]
    result: pa.DataType
    parameters: tuple[str, ...]
    defaults: tuple[int | float | bool, ...] = ()
    """The defaults of the last parameters."""
    gathers: Gathered | None = None
    merges_two: bool = False
    """The first two arguments are passed as a pair."""

    def __call__(self, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The result for each row of the columns. Raises InvalidArgument, which names the function."""
        missing = len(self.parameters) - len(columns)
        rest = self.defaults[len(self.defaults) - missing :] if missing else ()
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        try:
            return pa.array([self._one((*row, *rest)) for row in rows], self.result)
        except InvalidArgument as exc:
            raise InvalidArgument(f"{self.name}: {exc}") from exc

    def _one(self, row: tuple[object, ...]) -> object:
        if self.gathers is not None:
            return self.call(() if row[0] is None else row[0], *row[1:])
        if any(value is None for value in row):
            return None
        return self.call(row[:2], *row[2:]) if self.merges_two else self.call(*row)


def bounds(call: Callable[[bytes, int], tuple[float, float]]) -> Callable[[bytes, int], dict[str, float]]:
    """A function that returns two bounds, as one that returns `BOUNDS`."""

    def struct(sketch: bytes, std_devs: int) -> dict[str, float]:
        lower, upper = call(sketch, std_devs)
        return {"lower": lower, "upper": upper}

    return struct


def counted(counts: Iterable[Mapping[str, Any]]) -> dict[Any, int]:
    """The `counts` of a group's values, which are gathered as pairs, by value."""
    return {each["key"]: int(each["value"]) for each in counts}


def called_functions(called: Collection[str]) -> Iterator[SketchFunction]:
    """The functions of sketches that have these names, in lower case, always in the same order. Raises MissingExtra."""
    modules = [module for prefix, module in _MODULES.items() if any(name.startswith(prefix) for name in called)]
    for module in dict.fromkeys(modules):
        for function in import_module(f"anabranch.sketches.sql.{module}").FUNCTIONS:
            if function.name in called:
                yield function
