"""Hosts of deployed queries: a host process supervises driver processes, each with a Spark session that runs queries."""
