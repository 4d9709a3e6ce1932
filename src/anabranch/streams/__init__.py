"""Streams: their life (create, scale, seal, truncate, delete) and writing to them. Logs do the appending."""
