"""Archives: streams as a metadata file and plain Parquet files in a folder or bucket, and back.

`source` reads what is archived, `data_files` writes and reads back data files, `export` creates an archive; `metadata`
loads and verifies one; `import_file` imports its files, `attach` lets a store read an archive, or any Parquet files,
where they lie; `adopt` is the transaction in which both become streams. The contents of an archive are defined in
`format`, the file format in `docs/how-to/archives.md`.
"""
