"""Names of streams: rename, move, aliases and former names."""
