"""Tier-2 files: plain Parquet that any engine can read, with the metadata that this store adds.

Rows are in log order. The columns are those of the stream's schema, then `_appended`, each row's append time. A file
holds one or more parts; a part is a run of one log's rows in whole row groups. The key-value metadata `anabranch` is
JSON with the format version and the parts. `docs/explanation/formats.md` is the contract.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.model.columns import TIME_TYPE

APPENDED: Final = "_appended"
METADATA_KEY: Final = b"anabranch"
VERSION: Final = 1


def file_columns(columns: pa.Schema) -> pa.Schema:
    """The columns of a file whose rows have `columns`."""
    return pa.schema([*columns, pa.field(APPENDED, TIME_TYPE)])
