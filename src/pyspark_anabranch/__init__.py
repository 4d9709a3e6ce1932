"""The data source `anabranch`: once the package is installed, `spark.read.format("anabranch")` works without setup.

Spark imports every top-level module called `pyspark_*` to look for a `DefaultSource`. It does so in a separate worker
process, before any data source is used, so this module must stay light: it imports only pyspark, which is already
loaded, until a stream is read or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The data source `anabranch`. Its options are described in `anabranch.spark.option_list`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "anabranch"

    def schema(self) -> StructType:
        """The columns that reading the stream yields; queries the store once."""
        from anabranch.spark.source import source

        return source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for `spark.read`."""
        from anabranch.spark.source import source

        return source.BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader for `spark.readStream`."""
        from anabranch.spark.source import source

        return source.StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer for `df.write`."""
        from anabranch.spark import sink

        return sink.BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer for `df.writeStream`."""
        from anabranch.spark import sink

        return sink.StreamWriter(self.options, schema, overwrite)
