"""What a file or pipe holds, as batches of a stream's columns, in bounded memory. Each row knows where it came from, so
that a wrong one can be pointed at. Nothing here writes to a store."""
