"""Prometheus's HTTP API for queries, below `/prometheus/{scope}`: a scope is what a Prometheus server is elsewhere."""
