"""The log's records: each kind is used, is documented with its fields, and can be logged as it is declared."""

from __future__ import annotations

import ast
import logging
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import anabranch
from anabranch.runtime import log_events
from anabranch.runtime.log_events import LogEvent

EVENTS = tuple(each for each in vars(log_events).values() if isinstance(each, LogEvent))
SOURCE = Path(anabranch.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "logging.md"

RESERVED = {*vars(logging.makeLogRecord({})), "message", "asctime", "event"}


class Found(NamedTuple):
    """What is in the package's source: the names used outside `log_events`, and each module's path with the functions that
    it calls by a name or as an attribute of one."""

    names: set[str]
    calls: set[tuple[Path, str]]


@cache
def found_in_source() -> Found:
    """One pass over the whole source, which takes a second or two."""
    found = Found(set(), set())
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name) and path.name != "log_events.py":
                found.names.add(node.id)
            elif isinstance(node, ast.Call):
                match node.func:
                    case ast.Name(name):
                        found.calls.add((path.relative_to(SOURCE), name))
                    case ast.Attribute(ast.Name(owner), name):
                        found.calls.add((path.relative_to(SOURCE), f"{owner}.{name}"))
    return found


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_a_record_carries_its_event_and_its_fields(event: LogEvent, caplog: pytest.LogCaptureFixture) -> None:
    values = dict.fromkeys(event.fields, 3)
    assert values and not RESERVED & values.keys()
    with caplog.at_level(logging.DEBUG, "anabranch"):
        event(**values)  # type: ignore[arg-type]
    (record,) = caplog.records
    assert (record.name, record.levelno) == (event.logger, event.level)
    assert vars(record).items() >= {"event": event.name, **values}.items()
    assert record.getMessage() and record.pathname == __file__


def test_every_logger_is_named_after_a_package() -> None:
    assert {event.package for event in EVENTS} <= {each.name for each in SOURCE.iterdir() if each.is_dir()}
    assert len({event.name for event in EVENTS}) == len(EVENTS)


def test_every_event_is_logged_somewhere() -> None:
    names = {name for name, value in vars(log_events).items() if isinstance(value, LogEvent)}
    assert names - found_in_source().names == set()


def test_the_page_of_the_docs_lists_every_event_with_logger_level_and_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(anabranch\.\w+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    documented = {name: (logger, level, tuple(re.findall(r"`(\w+)`", fields))) for name, logger, level, fields in rows}
    declared = {each.name: (each.logger, logging.getLevelName(each.level).lower(), each.fields) for each in EVENTS}
    assert documented == declared


def test_without_a_handler_nothing_is_printed() -> None:
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("anabranch").handlers)


def test_the_library_prints_nothing_and_leaves_signals_and_logging_to_its_host() -> None:
    """What the command line does is its own; pipelines show themselves on a screen that they are given; and where Spark has set
    a handler of its own, the host's is put back."""
    refused = {"print", "logging.basicConfig", "logging.getLogger", "signal.signal"}
    allowed = {
        *("cli/", "testing/", "runtime/log_events.py", "spark/pipelines/screen.py print"),
        "spark/session/start.py signal.signal",
        # These run only in processes of their own: a broker's, and the server of Spark's Python workers.
        *("server/logs.py logging.getLogger", "server/processes/child.py signal.signal"),
        "spark/session/worker_server.py signal.signal",
        "query/dialects/parser_warnings.py logging.getLogger",  # it keeps what sqlglot logs about a statement from the host
    }
    found = {f"{path} {called}" for path, called in found_in_source().calls if called in refused}
    assert {each for each in found if not each.startswith(tuple(allowed))} == set()
