"""The catalog: names, segments, spans, logs and extents in a SQL database. Port, queries, adapters.

No decision is made here but those that need the log's lock (`Catalog.commit`); `core` decides everything else.
"""
