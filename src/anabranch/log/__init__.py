"""Logs: physical append order. Append and commit, read and tail, compact and collect. No stream name is known here."""
