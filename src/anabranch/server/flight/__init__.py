"""Arrow Flight: append, read, describe, and where sessions and verbs are plugged in."""
