"""Blobs: immutable bytes under a key, in a folder, an object store or memory. Port, adapters, keys, encryption."""
