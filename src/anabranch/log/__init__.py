"""Logs in physical append order: append and commit, read and tail, compact and collect. Stream names are unknown
here."""
