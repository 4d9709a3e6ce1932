"""The options of a store's address: what follows the `?`."""

from __future__ import annotations

from urllib.parse import parse_qsl


def url_options(query: str) -> list[tuple[str, str]]:
    """The names and values, decoded as libpq decodes them: `%20` is a space, `+` a plus, unlike in a web form."""
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
