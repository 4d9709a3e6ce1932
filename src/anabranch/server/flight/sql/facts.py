"""The facts about the server and its column types that Flight SQL reports, by the numbers of its specification."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

from anabranch import __version__

_VALUE: Final = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
_CHILDREN: Final = {"text": 0, "flag": 1, "number": 2, "bits": 3, "texts": 4}
SCHEMA: Final = pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", _VALUE, False)])

_FACTS: Final[dict[int, tuple[str, Any]]] = {
    0: ("text", "Anabranch"),
    1: ("text", __version__),
    2: ("text", pa.__version__),
    3: ("flag", True),  # read only
    4: ("flag", True),  # takes SQL
    5: ("flag", False),  # no Substrait
    8: ("number", 0),  # no transactions
    9: ("flag", True),  # queries can be cancelled
    10: ("flag", False),  # no bulk ingestion
    100: ("number", 0),  # a statement has no time-out that the client could set
    101: ("number", 0),
    500: ("flag", False),  # no CREATE CATALOG, SCHEMA, TABLE
    501: ("flag", False),
    502: ("flag", False),
    503: ("number", 1),  # identifiers are compared without case
    504: ("text", '"'),
    505: ("number", 1),
    506: ("flag", True),  # all listed tables can be selected
    507: ("number", 3),  # NULLs are sorted last
    508: ("texts", ["ANTI", "ASOF", "PIVOT", "POSITIONAL", "QUALIFY", "SEMI", "SUMMARIZE", "UNPIVOT"]),
    509: ("texts", ["abs", "ceil", "exp", "floor", "ln", "log", "mod", "power", "round", "sign", "sqrt"]),
    510: ("texts", ["concat", "length", "lower", "replace", "substring", "trim", "upper"]),
    511: ("texts", []),
    512: ("texts", ["date_diff", "date_part", "date_trunc", "now", "strftime", "time_bucket"]),
    513: ("text", "\\"),
    514: ("text", ""),
    515: ("flag", True),  # column aliases
    516: ("flag", True),  # NULL + 1 is NULL
    518: ("flag", True),  # table aliases
    519: ("flag", False),
    520: ("flag", True),  # expressions in ORDER BY
    521: ("flag", True),
    522: ("bits", 2),  # GROUP BY columns that are not selected
    523: ("flag", True),  # LIKE … ESCAPE
    524: ("flag", True),
    525: ("bits", 7),
    526: ("bits", 1),
    527: ("flag", False),
    528: ("bits", 7),  # outer joins
    529: ("text", "scope"),
    530: ("text", ""),
    531: ("text", "store"),
    532: ("number", 1),  # the catalog is written first
    533: ("bits", 7),
    534: ("bits", 7),
    535: ("flag", False),  # no positioned DELETE, UPDATE, SELECT FOR UPDATE
    536: ("flag", False),
    537: ("flag", False),
    538: ("flag", False),  # no stored procedures
    539: ("bits", 15),  # subqueries
    540: ("flag", True),
    541: ("bits", 3),
    565: ("number", 0),
    566: ("flag", False),
    567: ("flag", False),
    568: ("flag", False),
    569: ("number", 0),
    570: ("bits", 1),
    571: ("bits", 0),
    572: ("flag", False),
    573: ("flag", False),
    574: ("flag", False),
    575: ("flag", False),
    576: ("flag", False),
}

# name, number in JDBC, size, quote, unsigned
_TYPES: Final = (
    ("BOOLEAN", -7, 1, None, None),
    ("TINYINT", -6, 3, None, False),
    ("SMALLINT", 5, 5, None, False),
    ("INTEGER", 4, 10, None, False),
    ("BIGINT", -5, 19, None, False),
    ("FLOAT", 6, 7, None, False),
    ("DOUBLE", 8, 15, None, False),
    ("DECIMAL", 3, 38, None, False),
    ("VARCHAR", 12, 2_147_483_647, "'", None),
    ("BLOB", -3, 2_147_483_647, "'", None),
    ("DATE", 91, 10, "'", None),
    ("TIME", 92, 15, "'", None),
    ("TIMESTAMP", 93, 26, "'", None),
    ("TIMESTAMP WITH TIME ZONE", 2014, 32, "'", None),
)
TYPES_SCHEMA: Final = pa.schema(
    [
        pa.field("type_name", pa.string(), False),
        pa.field("data_type", pa.int32(), False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), False))),
        pa.field("nullable", pa.int32(), False),
        pa.field("case_sensitive", pa.bool_(), False),
        pa.field("searchable", pa.int32(), False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)


def facts(wanted: Collection[int]) -> pa.Table:
    """Those with these numbers, as far as they are known; none stands for all."""
    known = [(number, *_FACTS[number]) for number in sorted(set(wanted) & _FACTS.keys() if wanted else _FACTS)]
    values: list[list[Any]] = [[] for _ in range(_VALUE.num_fields)]
    kinds, offsets = [], []
    for _, kind, value in known:
        child = _CHILDREN[kind]
        kinds.append(child)
        offsets.append(len(values[child]))
        values[child].append(value)
    children = [pa.array(each, _VALUE.field(number).type) for number, each in enumerate(values)]
    union = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, [field.name for field in _VALUE]
    )
    return pa.table([pa.array([number for number, *_ in known], pa.uint32()), union], schema=SCHEMA)


def types(wanted: int | None) -> pa.Table:
    """The types of columns, or the one with this number in JDBC."""
    rows = [
        {
            "type_name": name,
            "data_type": number,
            "column_size": size,
            "literal_prefix": quote,
            "literal_suffix": quote,
            "nullable": 1,
            "case_sensitive": name == "VARCHAR",
            "searchable": 3,
            "unsigned_attribute": unsigned,
            "fixed_prec_scale": False,
            "auto_increment": False,
            "local_type_name": name,
            "sql_data_type": number,
            "num_prec_radix": 10 if unsigned is not None else None,
        }
        for name, number, size, quote, unsigned in _TYPES
        if wanted in (None, number)
    ]
    return pa.Table.from_pylist(rows, schema=TYPES_SCHEMA)
