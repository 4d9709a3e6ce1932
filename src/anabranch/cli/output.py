"""Printing for people and programs: aligned columns, JSON, numbers and times."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import typer


def print_json(value: object) -> None:
    """One JSON value: on one line for a program, indented for a person."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_columns(header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = "") -> None:
    """Aligned columns under a header. Numbers are set to the right."""
    texts = [[text_of(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(header)]
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(header))]
    print(indent + strong(_line(header, widths, right)))
    for row in texts:
        print(indent + _line(row, widths, right))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()


def text_of(value: object) -> str:
    """A value in a column: integers with separators, None as a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def strong(text: str) -> str:
    """Bold on a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text


def say(text: str) -> None:
    """A remark for the person in front of the terminal. It goes to stderr, so that it never mixes with data."""
    print(text, file=sys.stderr)


def iso_time(micros: int | None) -> str | None:
    """µs UTC as ISO 8601."""
    if micros is None:
        return None
    text = datetime.fromtimestamp(micros // 1_000_000, UTC).replace(microsecond=micros % 1_000_000).isoformat()
    return text.replace("+00:00", "Z")


def counted(count: int, what: str) -> str:
    """`1 event`, `2 events`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size_text(count: float) -> str:
    """Bytes as people write them, in powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed, where a person can answer; leaving the verb with exit code 1 if not."""
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        typer.confirm(question, abort=True)
