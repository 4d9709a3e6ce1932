"""Files of a stream's history by the names that Spark gives them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from anabranch.spark.source.history import NativeFile
from anabranch.spark.source.row_locations import by_file_name


class _File:
    def __init__(self, path: str) -> None:
        self.path = path
        self.key = path.rpartition("/")[2]
        self.pieces: Any = [path]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("/data/a.parquet", "/backup/data/a.parquet"), ("file:///data/a.parquet", "file:///backup/data/a.parquet")),
        (("s3://b/a.parquet", "s3://web-b/a.parquet"), ("s3a://b/a.parquet", "s3a://web-b/a.parquet")),
        (
            ("/my data/a.parquet", "/x/my data/a.parquet"),
            ("file:///my%20data/a.parquet", "file:///x/my%20data/a.parquet"),
        ),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_files_of_one_name_are_told_apart_by_their_folders(
    paths: tuple[str, ...], names: tuple[str, ...], turned: bool
) -> None:
    files = cast("list[NativeFile]", [_File(path) for path in paths])
    found = by_file_name(files, names[::-1] if turned else names)
    assert found == [(name, [path]) for path, name in zip(paths, names, strict=True)]
