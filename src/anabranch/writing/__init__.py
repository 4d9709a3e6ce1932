"""Writing events to streams: writers, acknowledgements, routing to segments, large events, staging and byte writers."""
