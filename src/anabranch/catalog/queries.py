"""Loads named SQL: every statement of an adapter is in a `.sql` file, under a line `-- name: …`."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable


def load(package: str, folder: str = "queries") -> dict[str, str]:
    """All named statements of a package's `.sql` files."""
    found: dict[str, str] = {}
    for file in sorted(_sql_files(package, folder), key=lambda f: f.name):
        for block in file.read_text().split("-- name: ")[1:]:
            name, _, text = block.partition("\n")
            assert name.strip() not in found, f"two statements are called {name}"
            found[name.strip()] = text.strip().rstrip(";")
    return found


def migrations(package: str) -> list[str]:
    """The migrations of a package in order; the n-th takes a database from format n - 1 to n."""
    return [file.read_text() for file in sorted(_sql_files(package, "migrations"), key=lambda f: f.name)]


def _sql_files(package: str, folder: str) -> list[Traversable]:
    return [file for file in files(package).joinpath(folder).iterdir() if file.name.endswith(".sql")]
