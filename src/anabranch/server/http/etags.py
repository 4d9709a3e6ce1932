"""Conditions of requests on the ETag of what they ask for."""

from __future__ import annotations


def names_tag(condition: str, tag: str, *, weak: bool) -> bool:
    """True if `If-Match` or `If-None-Match` lists the ETag, or is `*`. `weak`, for `If-None-Match`: a `W/` in front, which
    a proxy adds where it compresses, makes no difference."""
    listed = map(str.strip, condition.split(","))
    return any(each in ("*", tag) or (weak and each == f"W/{tag}") for each in listed)
