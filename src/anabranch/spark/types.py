"""Conversion of column types between the store and Spark, and of batches to those types.

Types that Spark lacks are widened if nothing is lost (unsigned integers, half floats); others are refused, with the
column's name. Spark maps the memory of an Arrow batch as it is, so a batch must have exactly the types, names and
nullability that Spark derives from its own schema. Spark checks only the first batch of a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.errors import SchemaMismatch
from anabranch.errors.optional import optional
from anabranch.model.columns import TIME_TYPE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ADDED", "SHED_DRAW", "SHED_RATE", "conformed", "spark_columns", "spark_schema", "stored_columns"]

# Columns that the store adds to every row it returns: `SegmentId.packed`, the event's offset, and its append time.
ADDED: Final = (pa.field("_segment", pa.int64()), pa.field("_offset", pa.int64()), pa.field("_appended", TIME_TYPE))

# Columns that a source which sheds load adds too: the batch's keep rate, and the number by which an event is kept.
SHED_RATE: Final = pa.field("_shed_rate", pa.float64())
SHED_DRAW: Final = pa.field("_shed_draw", pa.float64())

_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}
_SAME: Final = frozenset(
    {
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        TIME_TYPE,
        pa.timestamp("us"),
    }
)


def spark_columns(columns: pa.Schema) -> pa.Schema:
    """Stored columns in Spark's types, all nullable. Raises SchemaMismatch naming a column that Spark can't hold."""
    return pa.schema([pa.field(field.name, _spark_type(field.type, field.name)) for field in columns])


def spark_schema(columns: pa.Schema) -> StructType:
    """The Spark schema of `spark_columns`. Raises MissingExtra without pyspark."""
    with optional("Spark", "spark"):
        from pyspark.sql.pandas.types import from_arrow_schema
    return from_arrow_schema(columns)


def stored_columns(schema: StructType) -> pa.Schema:
    """The Arrow columns for a DataFrame's schema. Raises SchemaMismatch naming a column that can't be stored."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import GeographyType, GeometryType, UserDefinedType, VariantType

    fields = []
    for field in schema:
        try:
            if isinstance(field.dataType, VariantType | GeographyType | GeometryType | UserDefinedType):
                raise TypeError("it has no plain form")
            fields.append(pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC")))
        except (PySparkException, TypeError) as exc:
            message = f"column '{field.name}' of type {field.dataType.simpleString()} can't be stored; convert it first"
            raise SchemaMismatch(message, column=field.name) from exc
    return pa.schema(fields)


def conformed(arrays: list[pa.Array], columns: pa.Schema) -> pa.RecordBatch:
    """A batch with exactly these columns. `arrays` have their stored types, in the order of `columns`."""
    fitting = [
        array if array.type is field.type or str(array.type) == str(field.type) else array.cast(field.type)
        for array, field in zip(arrays, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitting, schema=columns)


def _spark_type(kind: pa.DataType, column: str) -> pa.DataType:
    types = pa.types
    if kind in _SAME:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    # Spark uses its own names for the inner fields of lists and maps.
    if types.is_list(kind):
        return pa.list_(pa.field("element", _spark_type(kind.value_type, column)))
    if types.is_map(kind):
        key = pa.field("key", _spark_type(kind.key_type, column), nullable=False)
        return pa.map_(key, pa.field("value", _spark_type(kind.item_type, column)))
    if types.is_struct(kind):
        return pa.struct([pa.field(inner.name, _spark_type(inner.type, column)) for inner in kind])
    raise SchemaMismatch(
        f"column '{column}' of type {kind} has no counterpart in Spark; leave it out with option 'columns'",
        column=column,
    )
