"""Where the events of a stream came from, and where two streams differ."""
