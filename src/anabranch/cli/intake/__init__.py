"""Reads files and pipes as batches of a stream's columns, in bounded memory. Each row knows its place in the input,
so that an error can name it. Nothing here writes to a store."""
