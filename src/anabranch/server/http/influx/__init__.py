"""InfluxDB's HTTP API, version 1: `/ping`, `/query` and `/write`. A database is a scope, a measurement a stream."""
