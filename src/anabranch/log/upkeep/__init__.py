"""Background maintenance of logs: compaction, flattening, collection."""
