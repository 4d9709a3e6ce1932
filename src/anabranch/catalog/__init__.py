"""The catalog: names, segments, spans, logs and extents in a SQL database. Port, queries, adapters.

Only decisions that need a log's lock are made here (`Catalog.commit`); all others are made in `core`.
"""
