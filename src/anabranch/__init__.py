"""Streams as files: a stream store with Spark as its engine."""
