"""Creates a catalog, or migrates an older one to the present format."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from psycopg import sql

from anabranch import limits
from anabranch.catalog.postgres.connection import too_new, translated
from anabranch.catalog.postgres.pipeline import SQL, PipelineConnection
from anabranch.catalog.queries import migrations
from anabranch.errors import CorruptCatalog, StoreNotFound

_PACKAGE = "anabranch.catalog.postgres"
MIGRATIONS = migrations(_PACKAGE)
FORMAT = len(MIGRATIONS)


def check_format(database: PipelineConnection, schema: str, where: str) -> int:
    """The format of the catalog, 0 if there is none. Raises CorruptCatalog if the schema holds other tables, and
    FormatTooNew."""
    with translated(where):
        row = database.execute(SQL["schema_exists"], (schema,)).fetchone()
        if not (row and row[0]):
            return 0
        tables = {name for (name,) in database.execute(SQL["tables"])}
        if not tables:
            return 0
        found = database.execute(SQL["format"]).fetchone() if {"meta", "extents"} <= tables else None
    if found is None:
        raise CorruptCatalog(f"the schema '{schema}' of {where} has other tables; choose another one with ?schema=")
    if found[0] > FORMAT:
        raise too_new(where, int(found[0]), FORMAT)
    return int(found[0])


def migrate(database: PipelineConnection, schema: str, where: str, *, create: bool = True) -> None:
    """Migrate the catalog to the current format in one transaction. If several processes try, one does it and the others
    wait. Writing transactions are excluded until then. Raises StoreNotFound if there is none and `create` is False."""
    found = check_format(database, schema, where)
    if found == FORMAT:
        return
    if found == 0 and not create:
        raise StoreNotFound(where)
    with translated(where), database.background(limits.CATALOG_LONG_S), database.transaction():
        database.execute(SQL["lock_migration"], (schema,))
        found = check_format(database, schema, where)
        if found == 0:
            database.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
            run(database, [_text("schema.sql"), *functions()])
        elif found < FORMAT:
            database.execute(SQL["lock"], ("writing",))
            run(database, [*MIGRATIONS[found:], *functions()])
        database.execute(SQL["set_format"], (FORMAT,))


def run(database: PipelineConnection, scripts: Sequence[str]) -> None:
    """Run scripts of several statements in the open transaction."""
    for script in scripts:
        database.execute(script.encode())


def functions() -> list[str]:
    """The SQL of the database's functions, in the order in which they can be created."""
    names = sorted(file.name for file in files(_PACKAGE).joinpath("functions").iterdir() if file.name.endswith(".sql"))
    return [_text("functions", name) for name in names]


def _text(*path: str) -> str:
    return files(_PACKAGE).joinpath(*path).read_text()
