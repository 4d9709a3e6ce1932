"""Rows that can't be written: counted, recorded in a file, and refused if there are too many."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from typing import IO

    from anabranch.cli.intake.batch import BadRow


class Rejects:
    """The rows of one input that can't be written. With a `path` they are recorded in this new file, as JSON lines; it is
    removed if there are none. `most` is how many are accepted: without it all if there is a file, else none."""

    def __init__(self, path: Path | None, most: int | None) -> None:
        """Raises InvalidArgument if the file can't be created."""
        self.path = path
        self.count = 0
        self._most = most
        self._file: IO[str] | None = None
        if path is not None:
            try:
                # Half of a surrogate pair, which JSON can hold, stays as JSON escapes it.
                self._file = path.open("x", encoding="utf-8", errors="backslashreplace")
            except OSError as exc:
                raise InvalidArgument(f"{path} can't be created: {exc.strerror}") from exc

    def add(self, row: BadRow) -> None:
        """Counts and records a row. Raises BadInput if it is one too many."""
        from anabranch.cli.intake.source import BadInput

        self.count += 1
        if self._file is not None:
            try:
                self._file.write(json.dumps(_entry(row), ensure_ascii=False) + "\n")
                self._file.flush()
            except OSError as exc:
                raise OSError(exc.errno, exc.strerror, str(self.path)) from exc
        if self._most is None and self._file is not None:
            return
        if self.count > (self._most or 0):
            beyond = f" (--skip-errors {self._most} skips no more)" if self._most else ""
            raise BadInput(row.place, row.why + beyond)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and self.path is not None:
            with suppress(*([OSError] if error is not None else [])):  # it would hide the error
                self._file.close()
            if not self.count:
                self.path.unlink(missing_ok=True)


def _entry(row: BadRow) -> dict[str, Any]:
    entry: dict[str, Any] = {row.unit: row.number, "reason": row.why}
    if row.text is not None:
        try:
            entry["text"] = row.text.decode()
        except UnicodeDecodeError:
            from base64 import b64encode

            entry["text_base64"] = b64encode(row.text).decode()
    elif row.values is not None:
        from anabranch.cli.render.json_lines import json_rows

        (values,) = json_rows(row.values.combine_chunks().to_batches()[0])
        entry["values"] = json.loads(values)
    return entry
