"""Frozen values that every layer speaks of: names, ids, key ranges, cuts, pointers, schemas, events.

Nothing here does I/O, reads a clock or knows a database.
"""
