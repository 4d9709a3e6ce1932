"""Opens a Parquet file for writing, with the encodings and statistics that suit its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.errors import SchemaMismatch

_SAMPLE_ROWS_MIN: Final = 64


def open_writer(
    sink: pa.BufferOutputStream, schema: pa.Schema, sample: pa.Table, encryption: Any, *, large: bool
) -> pq.ParquetWriter:
    """A writer for the file. `sample` are some of the file's rows. `large`: the file has large values. Raises
    SchemaMismatch for values that Parquet can't hold."""
    repeating = [path for field in schema for path in _dictionary_paths(field, sample.column(field.name))]
    compared: bool | list[str] = True
    if large:
        # Dictionaries and statistics copy the values: for values of some 100 MiB they cost ten times the rest.
        leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
        compared = [path for path, kind in leaves if not _is_text(kind)]
        repeating = [path for path in repeating if path in compared]
    try:
        return pq.ParquetWriter(
            sink,
            schema,
            version="2.6",
            data_page_version="1.0",  # every engine reads this version
            compression="zstd",
            use_dictionary=repeating,
            write_statistics=compared,
            write_page_index=True,
            write_page_checksum=True,
            encryption_properties=encryption,
        )
    except (pa.ArrowException, OSError) as exc:  # for a stream made before such columns were refused
        columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise SchemaMismatch(f"the columns {columns} can't be stored as Parquet: {exc}") from exc


def _dictionary_paths(field: pa.Field, sample: pa.ChunkedArray) -> list[str]:
    """The paths of a column's leaves that benefit from a dictionary: nested columns, and repeating values."""
    if pa.types.is_nested(field.type):
        return [path for path, _ in _leaves(field.name, field.type)]
    if len(sample) < _SAMPLE_ROWS_MIN:
        return [field.name]
    try:
        repeats = 2 * pc.count_distinct(sample).as_py() <= len(sample)
    except pa.ArrowNotImplementedError:
        repeats = True
    return [field.name] if repeats else []


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The paths of a column's leaves, with their types."""
    if pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind
