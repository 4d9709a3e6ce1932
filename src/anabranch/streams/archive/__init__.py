"""Archives: streams as a metadata file and plain Parquet files in a folder or bucket, and back.

`source` reads what is archived, `files` writes and reads back data files, `export` makes an archive; `metadata` loads and
verifies one; `bring` imports one, `attach` lets a store read one, or any Parquet files, where they lie; `adopt` is the
transaction in which both become streams. What an archive says is in `core.archive`, its format in `docs/ARCHIVES.md`.
"""
