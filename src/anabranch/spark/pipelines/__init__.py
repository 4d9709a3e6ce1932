"""Pipelines: SQL files whose statements run as Structured Streaming queries, each writing a stream."""
