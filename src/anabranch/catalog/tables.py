"""The catalog's tables as a manifest holds them: the same columns and values whatever database they came from.

Leases are not among them: they belong to work in progress, which no copy of a catalog continues. Nor are the digests of
the rows (`catalog.digests`), which are verified when a row is exported and computed again when it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["int", "bool", "text", "bytes"]
Value = int | bool | str | bytes | None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. A `derived` one is exported, but not loaded."""

    name: str
    kind: Kind
    nullable: bool = False
    derived: bool = False


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table, ordered by its key, which is its first `key` columns. `page` rows are read at a time."""

    name: str
    columns: tuple[TableColumn, ...]
    key: int = 1
    page: int = 1_000

    @property
    def first_key(self) -> tuple[Value, ...]:
        """A key that sorts before all others."""
        return tuple(-(1 << 63) if column.kind == "int" else "" for column in self.columns[: self.key])

    @property
    def loaded(self) -> int:
        """How many columns are loaded. They come before the derived ones."""
        return sum(not column.derived for column in self.columns)


def _columns(text: str) -> tuple[TableColumn, ...]:
    """Parse column definitions: `name:kind`, `name:kind?` if it may be null, `name:kind*` if derived and nullable."""
    found = []
    for word in text.split():
        name, _, kind = word.partition(":")
        found.append(TableColumn(name, kind.rstrip("?*"), kind[-1] in "?*", kind.endswith("*")))  # type: ignore[arg-type]
    return tuple(found)


# In this order no row refers to a later one. A blob's `checksum` comes from an extent in it; null without one.
# `recent` is packed as `model.append.Batches`, `answers` as `model.producer.ProducerAnswers`.
TABLES: Final = (
    CatalogTable("scopes", _columns("name:text tags:text created_at:int")),
    CatalogTable(
        "streams",
        _columns(
            "id:int scope:text name:text schema_version:int tags:text created_at:int sealed:bool version:int "
            "epoch:int next_number:int segments:int spans:int"
        ),
    ),
    CatalogTable(
        "schemas",
        _columns("stream:int version:int columns:bytes key_column:text? time_column:text? raw:bool"),
        key=2,
    ),
    CatalogTable("segments", _columns("stream:int segment:int low:text high:text retired:int? head:int"), key=2),
    CatalogTable(
        "logs",
        _columns(
            "id:int stream:int length:int sealed:bool fence:int low_water:int size:int appended_at:int event_high:int?"
        ),
    ),
    CatalogTable("spans", _columns("stream:int segment:int offset:int log:int start:int stop:int?"), key=3),
    CatalogTable(
        "blobs",
        _columns("key:text id:int size:int encoding:text begun_at:int dead_at:int? checksum:int*"),
    ),
    CatalogTable(
        "extents",
        _columns(
            "log:int start:int stop:int blob:int? encoding:text at:int length:int row:int schema:int checksum:int "
            "appended_low:int appended_high:int event_low:int? event_high:int? event_reach:int? size_end:int data:bytes?"
        ),
        key=2,
        page=256,  # each may carry 64 KiB inline
    ),
    CatalogTable("writers", _columns("log:int writer:text next:int fence:int recent:bytes seen_at:int"), key=2),
    CatalogTable(
        "producers",
        _columns("stream:int producer:text epoch:int last:int answers:bytes seen_at:int"),
        key=2,
        page=256,  # each may carry the answers to appends to many segments
    ),
    CatalogTable("requests", _columns("id:text operation:text result:text at:int")),
    CatalogTable("changes", _columns("sequence:int stream:int? at:int kind:text detail:text")),
    CatalogTable("aliases", _columns("name:text stream:int")),
    CatalogTable("states", _columns("kind:text key:text lookup:text? value:text"), key=2),
)
# The tables that no manifest holds. Together with `TABLES` they are the whole catalog.
LOCAL_TABLES: Final = (
    CatalogTable("leases", _columns("id:text kind:text holder:text begun_at:int expires_at:int")),
    CatalogTable("meta", _columns("name:text value:int")),
)
BY_NAME: Final = {table.name: table for table in (*TABLES, *LOCAL_TABLES)}
