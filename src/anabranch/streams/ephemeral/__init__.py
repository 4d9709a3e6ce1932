"""Ephemeral streams: their holders, how they are kept alive, and when they are removed."""
