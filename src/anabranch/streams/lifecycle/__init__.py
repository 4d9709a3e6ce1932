"""The lifecycle of a stream: find, create, evolve, scale, seal, truncate, delete."""
