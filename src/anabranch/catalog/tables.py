"""The catalog's tables as a manifest holds them: the same columns and values whatever database they came from.

Leases are not among them: what they hold is work under way, which no copy of a catalog continues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["int", "bool", "text", "bytes"]
Value = int | bool | str | bytes | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column. A `derived` one is told, but not loaded."""

    name: str
    kind: Kind
    nullable: bool = False
    derived: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the order of its key, which is its first `key` columns. `page` rows are read at once."""

    name: str
    columns: tuple[Column, ...]
    key: int = 1
    page: int = 1_000

    @property
    def before_all(self) -> tuple[Value, ...]:
        """A key that sorts before all others."""
        return tuple(-(1 << 63) if column.kind == "int" else "" for column in self.columns[: self.key])

    @property
    def loaded(self) -> int:
        """How many of the columns are loaded: the first ones."""
        return sum(not column.derived for column in self.columns)


def _columns(text: str) -> tuple[Column, ...]:
    """From `name:kind`, `name:kind?` where it may be null, and `name:kind*` where it is derived and may be null."""
    found = []
    for word in text.split():
        name, _, kind = word.partition(":")
        found.append(Column(name, kind.rstrip("?*"), kind[-1] in "?*", kind.endswith("*")))  # type: ignore[arg-type]
    return tuple(found)


# In this order no row refers to one that comes later. A blob's `checksum` is that of an extent in it, null where there
# is none. `recent` is packed as `model.append.Batches`.
TABLES: Final = (
    Table("scopes", _columns("name:text tags:text created_at:int")),
    Table(
        "streams",
        _columns(
            "id:int scope:text name:text schema_version:int tags:text created_at:int sealed:bool version:int "
            "epoch:int next_number:int"
        ),
    ),
    Table(
        "schemas",
        _columns("stream:int version:int columns:bytes key_column:text? time_column:text? raw:bool"),
        key=2,
    ),
    Table("segments", _columns("stream:int segment:int low:text high:text retired:int? head:int"), key=2),
    Table(
        "logs",
        _columns(
            "id:int stream:int length:int sealed:bool fence:int low_water:int size:int appended_at:int event_high:int?"
        ),
    ),
    Table("spans", _columns("stream:int segment:int offset:int log:int start:int stop:int?"), key=3),
    Table(
        "blobs",
        _columns("key:text id:int size:int encoding:text begun_at:int dead_at:int? checksum:int*"),
    ),
    Table(
        "extents",
        _columns(
            "log:int start:int stop:int blob:int? encoding:text at:int length:int row:int schema:int checksum:int "
            "appended_low:int appended_high:int event_low:int? event_high:int? event_reach:int? size_end:int data:bytes?"
        ),
        key=2,
        page=256,  # each may carry 64 KiB inline
    ),
    Table("writers", _columns("log:int writer:text next:int fence:int recent:bytes seen_at:int"), key=2),
    Table("requests", _columns("id:text operation:text result:text at:int")),
    Table("changes", _columns("sequence:int stream:int? at:int kind:text detail:text")),
    Table("pieces", _columns("kind:text name:text value:text"), key=2),
)
BY_NAME: Final = {table.name: table for table in TABLES}
