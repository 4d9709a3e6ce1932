"""Rows as the body of an answer, bit by bit: results of queries, and events as Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from anabranch import limits
from anabranch.errors import TooLarge
from anabranch.model.cut import StreamCut
from anabranch.server.events.arrow_encoder import END, arrow_batch, arrow_head, empty_batch
from anabranch.server.events.parquet_encoder import ParquetEncoder
from anabranch.server.events.row_encoder import check_result, encode_results


class ResultEncoder:
    """Encodes rows: `head`, then each batch, then `end`. Of events, `after` is the cut behind the batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def head(self) -> bytes:
        """What comes before the first batch."""
        return b""

    def batch(self, batch: pa.RecordBatch, after: StreamCut | None = None) -> bytes:
        """Rows."""
        raise NotImplementedError

    def end(self) -> bytes:
        """What comes after the last batch."""
        return b""

    def problem(self, problem: Mapping[str, Any]) -> bytes | None:
        """The end of a result that can't be completed: why, or None if the form has no place for that."""
        del problem
        return None


class _Lines(ResultEncoder):
    """Each row as a JSON object on a line of its own."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        check_result(schema)

    def batch(self, batch: pa.RecordBatch, after: StreamCut | None = None) -> bytes:
        return b"".join(row + b"\n" for row in encode_results(batch))

    def problem(self, problem: Mapping[str, Any]) -> bytes:
        return b'{"_problem":%b}\n' % msgspec.json.encode(problem)


class _Document(ResultEncoder):
    """One JSON object with all rows, so there is a limit to its size."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        check_result(schema)
        self._rows: list[bytes] = []
        self._size = 0

    def batch(self, batch: pa.RecordBatch, after: StreamCut | None = None) -> bytes:
        rows = encode_results(batch)
        self._rows += rows
        self._size += sum(map(len, rows))
        if self._size > limits.HTTP_PAGE_BYTES_MAX:
            raise TooLarge(
                "the result as one JSON document (ask for NDJSON, Arrow or Parquet instead)",
                self._size,
                limits.HTTP_PAGE_BYTES_MAX,
            )
        return b""

    def end(self) -> bytes:
        columns = [{"name": field.name, "type": str(field.type)} for field in self.schema]
        return b'{"columns":%b,"rows":[%b]}' % (msgspec.json.encode(columns), b",".join(self._rows))


class _Arrow(ResultEncoder):
    """An Arrow IPC stream."""

    def head(self) -> bytes:
        return arrow_head(self.schema)

    def batch(self, batch: pa.RecordBatch, after: StreamCut | None = None) -> bytes:
        return arrow_batch(batch, after)

    def end(self) -> bytes:
        return END

    def problem(self, problem: Mapping[str, Any]) -> bytes:
        return arrow_batch(empty_batch(self.schema), None, problem) + END


class _Parquet(ResultEncoder):
    """A Parquet file, whose missing footer shows that it is not whole."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._file = ParquetEncoder(schema)

    def batch(self, batch: pa.RecordBatch, after: StreamCut | None = None) -> bytes:
        return self._file.write(batch)

    def end(self) -> bytes:
        return self._file.end()


ENCODERS: Final[Mapping[str, Callable[[pa.Schema], ResultEncoder]]] = {
    "json": _Document,
    "ndjson": _Lines,
    "arrow": _Arrow,
    "parquet": _Parquet,
}
