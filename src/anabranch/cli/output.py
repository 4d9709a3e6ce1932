"""Printing for people and programs: aligned columns, JSON, numbers and times.

Everything that the command line prints goes through here or `render`, since it may contain untrusted text: names, tags,
messages, events. For people no control character reaches the terminal; JSON keeps its value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from anabranch.core.terminal import terminal_json, terminal_text


def put_line(text: object = "", *, bold: bool = False, flush: bool = False) -> None:
    """Prints a line for people on stdout."""
    line = terminal_text(str(text))
    print(strong(line) if bold else line, flush=flush)


def put_json(text: str, *, flush: bool = False) -> None:
    """Prints JSON on stdout: unchanged for a program; for a terminal with control characters escaped, which keeps
    the value."""
    print(terminal_json(text) if sys.stdout.isatty() else text, flush=flush)


def put_text(text: str, *, end: str = "\n") -> None:
    """Prints text of several lines on stdout, unchanged for a program."""
    print(terminal_text(text, lines=True) if sys.stdout.isatty() else text, end=end)


def print_json(value: object) -> None:
    """Prints one JSON value: on one line for a program, indented for a person."""
    put_json(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_columns(header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = "") -> None:
    """Prints aligned columns under a header. Numbers are right-aligned."""
    texts = [[terminal_text(text_of(value)) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(header)]
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(header))]
    put_line(indent + _line(header, widths, right), bold=True)
    for row in texts:
        put_line(indent + _line(row, widths, right))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()


def text_of(value: object) -> str:
    """Returns a value as column text: integers with separators, None as a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def strong(text: str) -> str:
    """Returns the text in bold for a terminal. The text is safe to print."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text


def print_note(text: str) -> None:
    """Prints a remark for people. It goes to stderr, so that it never mixes with data."""
    print(terminal_text(text), file=sys.stderr)


def print_result(as_json: bool, value: object, text: str) -> None:
    """Prints what a verb did: as JSON for programs, or as a remark for people."""
    if as_json:
        print_json(value)
    else:
        print_note(text)


def iso_time(micros: int | None) -> str | None:
    """Formats µs UTC as ISO 8601; outside the years 1 to 9999, which that can't tell, as a number of µs."""
    if micros is None:
        return None
    try:
        text = datetime.fromtimestamp(micros // 1_000_000, UTC).replace(microsecond=micros % 1_000_000).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{micros} µs"
    return text.replace("+00:00", "Z")


def counted(count: int, what: str) -> str:
    """Returns a count with its noun: `1 event`, `2 events`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def print_unconfirmed(places: Sequence[str]) -> None:
    """Prints which attached files are not read yet, and how to confirm them."""
    for place in places:
        print_note(f"attached files in {place} are not read until you confirm: anabranch attach --confirm '{place}'")
