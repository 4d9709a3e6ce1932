"""Signatures of modules' functions as text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument
from anabranch.wasm.columns import NAMES
from anabranch.wasm.signature import FunctionSignature, parse_signature, parse_signatures


def test_a_signature_is_read_and_written() -> None:
    found = parse_signature(" score ( celsius float64,factor: bigint ,at timestamp)->bool ")
    assert found == FunctionSignature(
        "score",
        (("celsius", pa.float64()), ("factor", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))),
        pa.bool_(),
    )
    assert str(found) == "score(celsius double, factor int64, at timestamp) -> boolean"
    assert parse_signature(str(found)) == found


@pytest.mark.parametrize("name", NAMES)
def test_every_type_has_a_name_that_is_read_back(name: str) -> None:
    assert str(parse_signature(f"f(x {name}) -> {name}")) == f"f(x {name}) -> {name}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a signature"),
        ("score", "expected NAME(COLUMN TYPE, …) -> TYPE"),
        ("score(celsius double)", "is not a signature"),
        ("score() -> double", "score has 0 arguments"),
        (f"score({', '.join(f'a{n} double' for n in range(17))}) -> double", "score has 17 arguments"),
        ("score(double) -> double", "'double' is not a name with a type"),
        ("score(x wide) -> double", "unknown type 'wide'"),
        ("score(x decimal) -> double", "unexpected in the schema"),
        ("1score(x double) -> double", "can't name a function"),
        ("größe(x double) -> double", "can't name a function"),
        ("s" * 200 + "(x double) -> double", "can't name a function"),
    ],
)
def test_what_is_no_signature_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_signature(text)
    assert said in str(refused.value)


def test_a_module_has_functions_of_different_names() -> None:
    with pytest.raises(InvalidArgument, match="two functions called score"):
        parse_signatures(["score(x double) -> double", "Score(y int64) -> double"])
    with pytest.raises(InvalidArgument, match="1 to 64 functions in a module, got 0"):
        parse_signatures([])
