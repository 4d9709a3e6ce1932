"""Companion streams: internal streams that belong to another stream and are deleted with it."""
