"""One shared reader at the tail of each followed stream, for any number of followers."""
