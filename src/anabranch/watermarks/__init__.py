"""Watermarks: up to which event time a stream is complete, as noted by its writers."""
