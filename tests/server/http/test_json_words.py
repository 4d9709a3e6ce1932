"""What a caller over HTTP is told of a wrong value is in the words of JSON: an object, an array, null; not in those of Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import httpx
import pytest

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server import calls
from anabranch.server.broker import Broker
from anabranch.server.http.table import ENDPOINTS
from anabranch.store import Store
from anabranch.wire.hints import conform
from anabranch.wire.verbs import VERBS

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 5, 1.5, "\0", [], {}, [1], {"a": 1}, [[1]], {"a": [1]}, [{"a": None}], {"a": None}),
)
CALLBACKS: Final = frozenset({"progress", "started"})
MEMBERS: Final = (
    *(
        "a",
        "name",
        "by",
        "checks",
        "columns",
        "cut",
        "events",
        "files",
        "from",
        "group",
        "key",
        "keys",
        "limit",
        "load",
    ),
    *(
        "memory",
        "parameters",
        "position",
        "range",
        "replace",
        "request",
        "retention",
        "scaling",
        "schema",
        "sql",
        "start",
    ),
    *(
        "steps",
        "stream",
        "streams",
        "tags",
        "template",
        "time",
        "to",
        "transaction",
        "trigger",
        "validation",
        "version",
    ),
)
PYTHON: Final = re.compile(
    r"\b(Mapping|Sequence|NoneType|dict|list\[|tuple|frozenset|set of|Collection|Iterable|int|float|bool|str|True|False|None|"
    r"PathLike|Callable|Unset|argument of type|object at 0x|takes \d+ positional)\b"
)
BODIES: Final = [*VALUES, *({member: value} for member in MEMBERS for value in (None, 5, "\0", [1], {"a": None}))]
CHANGING: Final = [each for each in ENDPOINTS if each.method in ("POST", "PUT", "PATCH")]


def said(call: Callable[[], object]) -> str:
    """The message with which a call is refused; nothing if it isn't."""
    try:
        call()
    except AnabranchError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize("verb", VERBS)
def test_the_types_of_a_verb_s_arguments(verb: str) -> None:
    hints = VERBS[verb].hints
    for name in VERBS[verb].parameters.keys() - CALLBACKS:
        assert name in hints, "a type that is imported only for type checkers"
        for value in VALUES:
            message = said(partial(conform, value, hints[name], f"argument '{name}'"))
            assert not PYTHON.search(message), message


# Calls that wait, and those that would write to places of this machine.
LEFT_OUT: Final = ("wait", "follow", "backup", "archives", "attach", "collect", "check", "events")
REQUIRED: Final = {
    **dict.fromkeys(("name", "stream", "source"), "iot/sensors"),
    "scope": "iot",
    "target": "iot/new",
    "sql": "SELECT 1",
    "text": "SELECT 1",
    "time": 0,
}


@pytest.mark.parametrize("verb", [each for each in VERBS if not any(word in each for word in LEFT_OUT)])
def test_what_a_verb_says_of_a_wrong_argument(store: Store, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(limits, "DEPLOYMENT_HEARD_S", 0.01)
    parameters = VERBS[verb].parameters
    if {"url", "place"} & parameters.keys():
        return
    broker = Broker(store, OpenGuard())
    required = {name: REQUIRED.get(name, "x") for name, each in parameters.items() if each.default is each.empty}
    for name in parameters:
        for value in VALUES:
            message = said(partial(calls.run, broker, Principal("alice"), verb, {**required, name: value}))
            assert not PYTHON.search(message), (name, value, message)


@pytest.mark.parametrize("endpoint", CHANGING, ids=lambda each: f"{each.method} {each.path}")
def test_what_an_endpoint_answers(http: httpx.Client, monkeypatch: pytest.MonkeyPatch, endpoint: Any) -> None:
    monkeypatch.setattr(limits, "DEPLOYMENT_HEARD_S", 0.01)
    path = re.sub(r"\{verb\}", "streams.create", re.sub(r"\{scope\}", "iot", endpoint.path))
    path = re.sub(r"\{[^}]*\}", "sensors", path)
    for body in BODIES:
        answer = http.request(endpoint.method, path, json=body)
        assert answer.status_code in (503, *range(200, 500)), (body, answer.text)
        if answer.status_code >= 400 and answer.headers["content-type"] == "application/problem+json":
            assert not PYTHON.search(answer.json()["detail"]), (body, answer.text)
