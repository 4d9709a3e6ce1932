"""Prints a result in the format that is asked for, or that fits where it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from anabranch.cli.formats import Format
from anabranch.cli.render.arrow_stream import Arrow
from anabranch.cli.render.csv_file import Csv
from anabranch.cli.render.json_lines import JsonLines
from anabranch.cli.render.parquet_file import Parquet
from anabranch.cli.render.sink import Renderer, Sink
from anabranch.cli.render.table import TableRenderer
from anabranch.errors import InvalidArgument

__all__ = ["choose", "render"]

_MAKERS: Final[dict[Format, Callable[[pa.Schema, Sink], Renderer]]] = {
    Format.table: TableRenderer,
    Format.jsonl: JsonLines,
    Format.csv: Csv,
    Format.arrow: Arrow,
    Format.parquet: Parquet,
}
_ENDINGS: Final = {
    ".jsonl": Format.jsonl,
    ".ndjson": Format.jsonl,
    ".json": Format.jsonl,
    ".csv": Format.csv,
    ".arrow": Format.arrow,
    ".arrows": Format.arrow,
    ".parquet": Format.parquet,
    ".pq": Format.parquet,
    ".txt": Format.table,
}


def choose(chosen: Format | None, *, as_json: bool, output: Path | None = None) -> Format:
    """Returns the format: the given one, else the one of the output file's ending, else a table for a terminal and JSON
    lines for a program. Raises InvalidArgument for an unknown ending."""
    if as_json:
        if chosen not in (None, Format.jsonl):
            raise InvalidArgument(f"--json prints JSON lines; it can't be combined with --format {chosen.value}")
        return Format.jsonl
    if chosen is not None:
        return chosen
    if output is None:
        return Format.table if sys.stdout.isatty() else Format.jsonl
    if (found := _ENDINGS.get(output.suffix.lower())) is None:
        raise InvalidArgument(f"the ending of {output} names no format ({', '.join(_ENDINGS)}): pass --format")
    return found


def render(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    kind: Format,
    output: Path | None = None,
    *,
    keep: bool = False,
) -> None:
    """Prints batches of one schema as they arrive, on stdout or into the new file `output`. Unless `keep`, a file that
    is not complete is removed. Raises InvalidArgument for a file that exists."""
    with _sink(output, keep=keep) as sink:
        renderer = _MAKERS[kind](schema, sink)
        for batch in batches:
            renderer.write(batch)
        renderer.close()


@contextmanager
def _sink(output: Path | None, *, keep: bool) -> Iterator[Sink]:
    if output is None:
        sys.stdout.flush()
        yield Sink(sys.stdout.buffer, sys.stdout.isatty())
        return
    try:
        file = output.open("xb")
    except OSError as exc:
        raise InvalidArgument(f"{output} can't be created: {exc.strerror}") from exc
    try:
        with file:
            yield Sink(file)
    except BaseException:
        if not keep:
            output.unlink(missing_ok=True)
        raise
