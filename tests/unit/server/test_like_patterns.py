"""The patterns of Flight SQL's listings."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from anabranch.server.flight.sql.listings import _pattern
from anabranch.wire.v1 import flight_sql_pb2 as sql


def matches(pattern: str, name: str) -> bool:
    command = sql.CommandGetTables(table_name_filter_pattern=pattern)
    return _pattern(command, "table_name_filter_pattern").fullmatch(name) is not None


@given(st.text("ab%_\\", max_size=8), st.text("ab%_\n", max_size=8))
def test_a_pattern_matches_what_like_matches(pattern: str, name: str) -> None:
    parts = re.findall(r"\\.|[^\\]|\\", pattern)
    plain = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)
    assert matches(pattern, name) == (re.fullmatch(plain, name, re.DOTALL) is not None)


def test_a_pattern_of_many_wildcards_is_matched_at_once() -> None:
    started = time.process_time()
    assert not matches("%a" * 40 + "b", "a" * 100)
    assert matches("%" * 100 + "b", "a" * 99 + "b")
    assert time.process_time() - started < 5  # it took longer than anybody waits
