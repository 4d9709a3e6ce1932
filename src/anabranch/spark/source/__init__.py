"""Streams as a Spark source: micro-batches, batch reads, and compacted history through Spark's Parquet reader."""
