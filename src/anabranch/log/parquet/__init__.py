"""Tier-2 files: writing and reading Parquet, copying row groups without decoding, and the Thrift metadata of files."""
