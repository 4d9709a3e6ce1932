"""Which streams, scopes and groups a listing selects: by tags, and by a pattern of their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from anabranch.errors import InvalidArgument

Tags = str | Sequence[str] | Mapping[str, str]


class ListFilter:
    """A filter of a listing. Case matters.

    `tag`: `"owner"` selects what has that tag, `"owner=plant-7"` what has it with that value; of several, in a list or
    as a mapping, all must hold. `pattern`: a glob (`*`, `?`, `[a-z]`). With a slash it is matched with the full name
    `scope/name`, else with the last part. Raises InvalidArgument.
    """

    def __init__(self, *, tag: Tags | None = None, pattern: str | None = None) -> None:
        if pattern is not None and (not isinstance(pattern, str) or not pattern):
            raise InvalidArgument(f"expected a pattern such as 'sensor-*', got {pattern!r}")
        self._pattern = pattern
        self._tags = _wanted_tags(tag)

    def __call__(self, name: str, tags: Mapping[str, str]) -> bool:
        """True if what has this full name and these tags is selected."""
        if any(key not in tags or value not in (None, tags[key]) for key, value in self._tags):
            return False
        if self._pattern is None:
            return True
        return fnmatchcase(name if "/" in self._pattern else name.rpartition("/")[2], self._pattern)


def _wanted_tags(tag: Tags | None) -> list[tuple[str, str | None]]:
    if isinstance(tag, Mapping):
        return list(tag.items())
    if tag is not None and not isinstance(tag, Collection):
        raise InvalidArgument(f"expected tag= as 'name', 'name=value' or several of them, got {tag!r:.100}")
    wanted: list[tuple[str, str | None]] = []
    for text in [tag] if isinstance(tag, str) else tag or ():
        name, equals, value = text.partition("=") if isinstance(text, str) else ("", "", "")
        if not name:
            raise InvalidArgument(f"expected a tag as 'name' or 'name=value', got {text!r}")
        wanted.append((name, value if equals else None))
    return wanted
