"""Wheels that come from outside: checked and read, without writing or running anything of them."""

from __future__ import annotations

import io
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Mapping
from email.parser import BytesParser
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument

__all__ = ["read_wheel"]

_NAME: Final = re.compile(
    r"(?P<name>\w[\w.]*)-(?P<version>[^-]+)(-\d[^-]*)?-(?P<python>[\w.]+)-(?P<abi>[\w.]+)-(?P<platform>[\w.]+)\.whl\Z",
    re.ASCII | re.IGNORECASE,
)
_PART: Final = re.compile(r"(?!\.{1,2}\Z)[^/\\:\x00-\x1f\x7f]{1,255}\Z")
_PATH_CHARS_MAX: Final = 1_024
_NATIVE: Final = (".so", ".pyd", ".dll", ".dylib")
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 0x1
_ENTRY: Final = b"PK\x01\x02"
# A wheel's module would hide a module of the same name that Spark or the store needs.
_TAKEN: Final = {*sys.stdlib_module_names, "anabranch", "pyspark", "pyspark_anabranch", "py4j"}
_UNREADABLE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


def read_wheel(
    name: str, content: bytes, *, unpacked_bytes_max: int = limits.WHEEL_UNPACKED_BYTES_MAX
) -> Mapping[str, bytes]:
    """The files of a pure wheel, by their relative paths with `/`. `name` is that of its file, as in
    `scoring-1.0-py3-none-any.whl`.

    Raises InvalidArgument for one that is not pure or not for this Python; for paths that lead out of a folder, links, names
    that differ only in case, modules that would hide those of Python or Spark; and for more than
    `limits.WHEEL_ENTRIES_MAX` files or `unpacked_bytes_max`, before so much is decompressed."""
    _check_name(name)
    # Each file has this mark in the directory, which is read as a whole before it can be counted.
    if content.count(_ENTRY) > 2 * limits.WHEEL_ENTRIES_MAX:
        raise InvalidArgument(f"wheel '{name}' has over {limits.WHEEL_ENTRIES_MAX:,} files, its limit")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [each for each in archive.infolist() if not each.is_dir()]
            _check_entries(name, archive.infolist(), entries, unpacked_bytes_max)
            files = {each.filename: _unpacked(archive, each) for each in entries}
    except InvalidArgument:
        raise
    except _UNREADABLE as exc:
        raise InvalidArgument(f"wheel '{name}' can't be read: {str(exc)[:200] or type(exc).__name__}") from exc
    _check_metadata(name, files)
    return files


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The content of a file. Without a number, `read` decompresses up to 1 GiB more than a file says it has."""
    with archive.open(entry) as file:
        content = file.read(entry.file_size)
    if len(content) != entry.file_size:
        raise zipfile.BadZipFile(f"'{entry.filename:.100}' has {len(content):,} bytes, not {entry.file_size:,}")
    return content


def _check_name(name: str) -> None:
    match = _NAME.match(name)
    if match is None:
        raise InvalidArgument(f"'{name:.200}' is not the name of a wheel: expected NAME-VERSION-py3-none-any.whl")
    if match["abi"].lower() != "none" or match["platform"].lower() != "any":
        raise InvalidArgument(
            f"wheel '{name}' is for one platform ({match['abi']}-{match['platform']}): expected a pure wheel, "
            "…-none-any.whl; compiled packages have to be installed on the hosts"
        )
    if not any(_fits(tag) for tag in match["python"].lower().split(".")):
        raise InvalidArgument(
            f"wheel '{name}' is for {match['python']}, but this is Python {sys.version_info.major}.{sys.version_info.minor}"
        )


def _fits(tag: str) -> bool:
    kind, major, minor = tag[:2], tag[2:3], tag[3:]
    if major != "3" or kind not in ("py", "cp") or not (minor.isdigit() or not minor):
        return False
    if kind == "cp":
        return minor == str(sys.version_info.minor)
    return not minor or int(minor) <= sys.version_info.minor


def _check_entries(
    name: str, listed: list[zipfile.ZipInfo], entries: list[zipfile.ZipInfo], unpacked_bytes_max: int
) -> None:
    if len(listed) > limits.WHEEL_ENTRIES_MAX:
        raise InvalidArgument(
            f"wheel '{name}' has {len(listed):,} files, over the limit of {limits.WHEEL_ENTRIES_MAX:,}"
        )
    size = sum(each.file_size for each in listed)
    if size > unpacked_bytes_max:
        raise InvalidArgument(f"wheel '{name}' has {size:,} bytes unpacked, over the limit of {unpacked_bytes_max:,}")
    seen: set[str] = set()
    for entry in listed:
        _check_path(name, entry)
    for entry in entries:
        path = entry.filename
        if path.casefold() in seen:
            raise InvalidArgument(f"wheel '{name}' has the file '{path:.200}' twice, or names that differ only in case")
        seen.add(path.casefold())
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise InvalidArgument(
                f"wheel '{name}' has '{path:.200}' encrypted, or compressed by another method than deflate"
            )
        if path.lower().endswith(_NATIVE):
            raise InvalidArgument(f"wheel '{name}' has compiled code, '{path:.200}': expected a pure wheel")
        top = path.partition("/")[0]
        if top.lower().endswith(".data"):
            raise InvalidArgument(f"wheel '{name}' has files to be installed elsewhere, '{path:.200}'")
        if top.removesuffix(".py") in _TAKEN:
            raise InvalidArgument(
                f"wheel '{name}' has a module '{top.removesuffix('.py')}', which would hide one that Python or Spark needs"
            )


def _check_path(name: str, entry: zipfile.ZipInfo) -> None:
    path = entry.orig_filename
    parts = path.removesuffix("/").split("/")
    if len(path) > _PATH_CHARS_MAX or path != entry.filename or not all(map(_PART.match, parts)):
        raise InvalidArgument(f"wheel '{name}' has a path that is not a plain relative one: {path!r:.200}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise InvalidArgument(f"wheel '{name}' has a link or special file, '{path:.200}'")


def _check_metadata(name: str, files: Mapping[str, bytes]) -> None:
    found = [path for path in files if path.endswith(".dist-info/WHEEL") and path.count("/") == 1]
    if len(found) != 1:
        raise InvalidArgument(f"wheel '{name}' is not a wheel: expected one file *.dist-info/WHEEL")
    if str(BytesParser().parsebytes(files[found[0]]).get("Root-Is-Purelib", "")).strip().lower() != "true":
        raise InvalidArgument(f"wheel '{name}' says that it is not pure: expected Root-Is-Purelib: true in {found[0]}")
