"""InfluxQL over streams: a database is a scope, a measurement a stream, tags and fields are columns.

`parser` reads a query, `select` and `show` answer its statements. DuckDB filters and aggregates, in the process where all
queries of a broker run; what is left to do here, on one row a window and series, is in `series` and the files it uses.
"""
