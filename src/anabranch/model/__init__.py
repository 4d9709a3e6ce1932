"""Immutable values that every layer uses: names, ids, key ranges, cuts, pointers, schemas, events.

Nothing here does I/O, reads a clock or depends on a database.
"""
