"""Regular expressions over names. RE2 runs them, in time linear to the text, so that no pattern can occupy the broker."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidSql


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names in which the pattern occurs, in their order. Raises InvalidSql for an invalid pattern."""
    try:
        found = pc.match_substring_regex(pa.array(names, pa.string()), pattern)
    except pa.ArrowException as exc:
        raise InvalidSql(f"bad regular expression /{pattern:.80}/: {exc}") from exc
    return [name for name, matches in zip(names, found.to_pylist(), strict=True) if matches]
