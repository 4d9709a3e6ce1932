"""Wheels from outside: what is read of them, and what is refused."""

from __future__ import annotations

import io
import stat
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from anabranch import limits
from anabranch.deployments.files import check_files
from anabranch.deployments.wheels import read_wheel
from anabranch.errors import InvalidArgument
from tests.wheels import WHEEL, wheel

NAME = "scoring-1.0-py3-none-any.whl"
MINOR = sys.version_info.minor


def entries(*named: tuple[zipfile.ZipInfo | str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A wheel with entries made one by one."""
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", method) as archive:
            archive.writestr("scoring-1.0.dist-info/WHEEL", WHEEL)
            for entry, content in named:
                archive.writestr(entry, content)
        return buffer.getvalue()


def test_its_files_are_read() -> None:
    files = read_wheel(NAME, wheel({"scoring/__init__.py": "x = 1", "scoring/data.json": "{}"}))
    assert files["scoring/__init__.py"] == b"x = 1"
    assert sorted(path for path in files if "dist-info" not in path) == ["scoring/__init__.py", "scoring/data.json"]


@pytest.mark.parametrize(
    "name",
    [
        "a-1-py3-none-any.whl",
        "a_b.c-1.0.post1-2-py2.py3-none-any.whl",
        f"a-1-cp3{MINOR}-none-any.whl",
        "a-1-py38-none-any.whl",
    ],
)
def test_names_of_pure_wheels_for_this_python(name: str) -> None:
    assert read_wheel(name, wheel({"a.py": ""}))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.whl", "is not the name of a wheel"),
        ("../a-1-py3-none-any.whl", "is not the name of a wheel"),
        (f"a-1-cp3{MINOR}-cp3{MINOR}-manylinux_2_17_x86_64.whl", "is for one platform"),
        ("a-1-py3-none-win_amd64.whl", "is for one platform"),
        ("a-1-py3-abi3-any.whl", "is for one platform"),
        ("a-1-py2-none-any.whl", "is for py2, but this is Python 3"),
        (f"a-1-py3{MINOR + 1}-none-any.whl", "but this is Python"),
        (f"a-1-cp3{MINOR - 1}-none-any.whl", "but this is Python"),
    ],
)
def test_names_that_do_not_fit(name: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_wheel(name, wheel({"a.py": ""}))


@pytest.mark.parametrize(
    "path",
    [
        "../evil.py",
        "a/../../evil.py",
        "/etc/evil.py",
        "a//evil.py",
        "./evil.py",
        "..",
        "a\\..\\evil.py",
        "C:evil.py",
        "a/\nevil.py",
        "a/" + "b" * 256,
        "/".join("a" * 200 for _ in range(6)),
    ],
)
def test_paths_that_are_not_plain_and_relative(path: str) -> None:
    with pytest.raises(InvalidArgument, match="not a plain relative one"):
        read_wheel(NAME, entries((path, "")))


def test_a_path_that_goes_on_after_a_nul() -> None:
    made = entries(("evilXpy", "")).replace(b"evilXpy", b"evil\0py")
    with pytest.raises(InvalidArgument, match="not a plain relative one"):
        read_wheel(NAME, made)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_special_files(kind: int) -> None:
    link = zipfile.ZipInfo("scoring.py")
    link.external_attr = (kind | 0o777) << 16
    with pytest.raises(InvalidArgument, match="link or special file"):
        read_wheel(NAME, entries((link, "/etc/passwd")))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("scoring/_fast.cpython-311-x86_64-linux-gnu.so", "compiled code"),
        ("scoring/_fast.PYD", "compiled code"),
        ("scoring-1.0.data/scripts/run.sh", "installed elsewhere"),
        ("json.py", "module 'json', which would hide"),
        ("asyncio/__init__.py", "module 'asyncio', which would hide"),
        ("pyspark/__init__.py", "module 'pyspark', which would hide"),
        ("anabranch/errors.py", "module 'anabranch', which would hide"),
    ],
)
def test_files_that_a_wheel_may_not_have(path: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_wheel(NAME, entries((path, "")))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("twin", ["scoring.py", "Scoring.py"])
def test_a_file_twice(twin: str) -> None:
    with pytest.raises(InvalidArgument, match="twice, or names that differ only in case"):
        read_wheel(NAME, entries(("scoring.py", "1"), (twin, "2")))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_of_compression_other_than_deflate(method: int) -> None:
    with pytest.raises(InvalidArgument, match="compressed by another method than deflate"):
        read_wheel(NAME, entries(("scoring.py", "x" * 1000), method=method))


def test_a_bomb_is_refused_by_its_sizes_before_it_is_unpacked() -> None:
    made = entries(("zeros.bin", bytes(limits.WHEEL_UNPACKED_BYTES_MAX)))
    assert len(made) < limits.WHEEL_UNPACKED_BYTES_MAX // 500
    with pytest.raises(InvalidArgument, match="bytes unpacked, over the limit"):
        read_wheel(NAME, made)


def test_a_bomb_that_lies_about_its_size_is_not_unpacked_beyond_it() -> None:
    real = 32 * 1024 * 1024
    made = entries(("zeros.bin", bytes(real)))
    lying = made.replace(struct.pack("<I", real), struct.pack("<I", 100))
    assert lying != made
    tracemalloc.start()
    with pytest.raises(InvalidArgument, match="can't be read"):
        read_wheel(NAME, lying)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < real // 8


def test_a_file_shorter_than_it_says() -> None:
    made = entries(("a.bin", b"x" * 1000))
    longer = made.replace(struct.pack("<I", 1000), struct.pack("<I", 2000))
    with pytest.raises(InvalidArgument, match="can't be read"):
        read_wheel(NAME, longer)


def test_bombs_in_several_wheels_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHEELS_UNPACKED_BYTES_MAX", 1_000_000)
    files = {f"w{n}-1-py3-none-any.whl": wheel({f"w{n}.txt": "0" * 400_000}, name=f"w{n}") for n in range(3)}
    assert check_files(dict(list(files.items())[:2]))
    with pytest.raises(
        InvalidArgument, match=r"wheel 'w2-1-py3-none-any.whl' has 400,\d+ bytes unpacked, over the limit of 199,"
    ):
        check_files(files)


def test_a_directory_of_a_million_files_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made = entries(("a.py", "x"))
    at = made.find(b"PK\x01\x02")
    with io.BytesIO() as buffer:
        buffer.write(made[:at] + made[at:] * 30_000)
        many = buffer.getvalue()
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(InvalidArgument, match="has over 10,000 files"):
        read_wheel(NAME, many)


def test_too_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHEEL_ENTRIES_MAX", 3)
    with pytest.raises(InvalidArgument, match="has 4 files, over the limit of 3"):
        read_wheel(NAME, entries(*((f"m{n}.py", "") for n in range(3))))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: b"", "can't be read"),
        (lambda: b"PK\x03\x04" + bytes(100), "can't be read"),
        (lambda: wheel({"a.py": "x" * 5000})[:-30], "can't be read"),
        (lambda: entries(("a.py", "x")).replace(b"dist-info", b"dist-misc"), "expected one file"),
        (lambda: wheel({}, metadata="Root-Is-Purelib: false\n"), "not pure"),
        (lambda: wheel({}, metadata="Wheel-Version: 1.0\n"), "not pure"),
    ],
)
def test_what_is_no_wheel(made: Callable[[], bytes], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_wheel(NAME, made())


def test_damaged_bytes_raise_nothing_else() -> None:
    whole = wheel({"scoring/__init__.py": "def f(x):\n    return x\n" * 20})
    for at in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        try:
            read_wheel(NAME, bytes(damaged))
        except InvalidArgument:
            continue


def test_an_encrypted_file() -> None:
    made = bytearray(entries(("scoring.py", "x")))
    at = made.rfind(b"PK\x01\x02")  # of the last file in the directory
    made[at + 8] |= 1
    with pytest.raises(InvalidArgument, match="encrypted"):
        read_wheel(NAME, bytes(made))
