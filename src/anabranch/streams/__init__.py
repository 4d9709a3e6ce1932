"""Streams: their lifecycle (create, scale, seal, truncate, delete), policies, names and combination. Appending to logs
is in `log`."""
