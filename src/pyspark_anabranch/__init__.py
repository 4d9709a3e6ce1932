"""Makes `spark.read.format("anabranch")` work by itself once the package is installed.

Spark imports every top-level module called `pyspark_*` to look for a `DefaultSource`, in a worker process of its own
and before any data source is used at all, so this module must stay light: pyspark, which is there already, and nothing
else until a stream is read or written.
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
    """The data source `anabranch`. Its options are those of `anabranch.spark.source` and `anabranch.spark.sink`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "anabranch"

    def schema(self) -> StructType:
        """The columns that reading the stream yields; asks the store once."""
        from anabranch.spark import source

        return source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from anabranch.spark import source

        return source.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from anabranch.spark import source

        return source.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from anabranch.spark import sink

        return sink.batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        from anabranch.spark import sink

        return sink.stream_writer(self.options, schema, overwrite=overwrite)
