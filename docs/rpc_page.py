"""Makes docs/reference/rpc.md from the `.proto` files, with their comments, and from the table of verbs.

The site's hook calls `page` at each build, so the page is never older than the protocol.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from importlib import resources
from inspect import Parameter
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Final, Literal, NewType, Union, get_args, get_origin

from anabranch.model.names import StreamName
from anabranch.reading.bounds import Place
from anabranch.wire.hints import hints_of
from anabranch.wire.verbs import VERBS, StoreVerb
from anabranch.wire.verbs.needs import Need

PROTOS: Final = ("store.proto", "anabranch.proto", "flight_sql.proto")
_HEAD: Final = """# Calls of a broker

What a broker answers, by gRPC and by Arrow Flight. [Run a broker](../how-to/run-a-broker.md) says at which ports, and
[gRPC](../how-to/grpc.md) shows calls. This page is made from the `.proto` files of `anabranch.wire.v1` and from the table
of verbs when the site is built.
"""
_VERBS: Final = """## Verbs

Everything that the store can do except writing and reading events. A verb is called by its name and a JSON object of
arguments, and answers with JSON: by gRPC with `Call`, by Flight with the action of the verb's name, over HTTP with a POST
to `/v1/call/VERB`. A verb has the name of its method in `anabranch.Store`, and [its documentation](api.md) says what it
does. The verb `run` (POST `/v1/run`) makes [several calls in one](../how-to/curl.md#several-calls-in-one).

- **Right**: the operations that the caller needs, see [access](access.md). *listed*: every caller with an identity may
  call it, and sees only what they may read.
- **Idempotent**: whether a call may be sent again when its answer was lost. *request*: if it has a `request`, a text of
  the caller's choice, and is sent again with the same one.
- **Arguments**: those with a default may be left out. A value beyond JSON is an object with its type as `$type`; names,
  cuts, pointers and times may also be text. A *place* is `head`, `tail`, a stream cut, an event pointer or a time.
"""
_CALLBACKS: Final = ("progress", "started")  # what they are told comes as messages before the answer
_TYPES: Final[Mapping[Any, str]] = {
    str: "text",
    StreamName: "text",
    bytes: "bytes",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
    Any: "any",
    object: "any",
    datetime: "time",
}
_PLACES: Final = frozenset(get_args(Place))
_FIELD: Final = re.compile(r"(?:(optional|repeated) )?(map<[^>]+>|[\w.]+) (\w+) = (\d+)[^;]*;")
_VALUE: Final = re.compile(r"(\w+) = (\d+);")
_RPC: Final = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")


# ---- the .proto files


@dataclass
class Message:
    """A message with its fields, each one's name, type and comment; or an enumeration with its values and numbers."""

    name: str
    comment: str
    fields: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass
class Proto:
    """A `.proto` file as text says it."""

    comment: str = ""
    calls: list[tuple[str, str, str, str]] = field(default_factory=list)  # name, request, response, comment
    messages: list[Message] = field(default_factory=list)


def parsed(name: str) -> Proto:
    """One of PROTOS."""
    text = resources.files("anabranch.wire.v1").joinpath(name).read_text(encoding="utf-8")
    proto, comment = Proto(), list[str]()
    open_: list[Message | None] = []  # what the braces belong to; None for a service, and for a oneof of a message
    for line in map(str.strip, text.splitlines()):
        if line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
            continue
        said = _paragraphs(comment)
        if line.startswith("syntax"):
            proto.comment = said
        elif opened := re.match(r"(message|enum) (\w+) \{", line):
            outer = next((each.name + "." for each in reversed(open_) if each is not None), "")
            message = Message(outer + opened[2], said)
            proto.messages.append(message)
            if not line.endswith("}"):
                open_.append(message)
        elif line.endswith("{"):
            open_.append(None)
        elif line == "}":
            open_.pop()
        elif call := _RPC.match(line):
            request, response = ((stream or "") + kind for stream, kind in (call.group(2, 3), call.group(4, 5)))
            proto.calls.append((call[1], request, response, said))
        elif found := _FIELD.match(line):
            message = next(each for each in reversed(open_) if each is not None)
            message.fields.append((found[3], f"{found[1]} {found[2]}" if found[1] else found[2], said))
        elif value := _VALUE.match(line):
            message = next(each for each in reversed(open_) if each is not None)
            message.fields.append((value[1], value[2], said))
        comment = []
    return proto


def _paragraphs(lines: list[str]) -> str:
    return " ".join(line for line in lines if not re.fullmatch(r"-{5,}.*", line)).strip()


def _proto_section(title: str, proto: Proto) -> Iterator[str]:
    yield f"## {title}"
    yield _plain(proto.comment)
    if proto.calls:
        rows = ["| Call | Request | Response | Meaning |", "|---|---|---|---|"]
        rows += [f"| `{name}` | `{asked}` | `{told}` | {_plain(said)} |" for name, asked, told, said in proto.calls]
        yield "\n".join(rows)
    for message in proto.messages:
        yield f"### {message.name}"
        yield _plain(message.comment)
        if message.fields:
            rows = ["| Field | Type | Meaning |", "|---|---|---|"]
            rows += [f"| `{name}` | `{kind}` | {_plain(said)} |" for name, kind, said in message.fields]
            yield "\n".join(rows)


# ---- the verbs


class _Named:
    """Stands for the value of an argument."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __iter__(self) -> Iterator[_Named]:
        yield self


# Arguments whose values matter, not that they are given.
_GIVEN: Final[Mapping[str, tuple[str, Any]]] = {"files": (" that have a wheel", {"code.whl": b""})}


def rights(verb: StoreVerb) -> str:
    """What a caller needs, and which arguments change that."""
    given: dict[str, Any] = {
        name: _Named(name) for name, each in verb.parameters.items() if each.default is Parameter.empty
    }
    base = _said(verb, given)
    parts = ["; ".join(base) or ("*listed*" if verb.shown is not None else "none")]
    for name, each in verb.parameters.items():
        if name in given:
            continue
        what, value = _GIVEN.get(name, ("", False if each.default is True else _Named(name)))
        more = _said(verb, {**given, name: value})
        if more != base:
            added = "; ".join(one for one in more if one not in base) or f"only {'; '.join(more)}"
            shown = f"`{name}` = false" if each.default is True else f"`{name}`{what}"
            parts.append(f"with {shown}: {added}")
    return "<br>".join(parts)


def _said(verb: StoreVerb, arguments: Mapping[str, Any]) -> list[str]:
    return [_need(each) for each in verb.needs(arguments)]


def _need(need: Need) -> str:
    if need.kind == "place":
        return f"`{_name(need.resource)}` below `allowed_places`"
    if need.kind == "query":
        return f"`{need.operation}` of the store if `{_name(need.resource)}` has Python code"
    if need.kind == "moved":
        return f"`{need.operation}` of the name in `{_name(need.resource[1])}`"
    if need.kind == "store" or need.resource is None:
        return f"`{need.operation}` of the store"
    kind = {"scope": "the scope ", "job": "the target of "}.get(need.kind, "")
    return f"`{need.operation}` of {kind}`{_name(need.resource)}`"


def _name(resource: Any) -> str:
    return resource.name if isinstance(resource, _Named) else str(resource)


def idempotent(verb: StoreVerb) -> str:
    """Whether a call may be sent again."""
    if "request" in verb.parameters and verb.changes:
        return "*request*"
    return "yes" if verb.repeatable else "no"


def _verb_row(verb: StoreVerb) -> str:
    sent = (each for each in verb.parameters.values() if each.name not in _CALLBACKS)
    arguments = "<br>".join(_argument(each, verb.hints.get(each.name, each.annotation)) for each in sent)
    result = _type(hints_of(verb.function).get("return", inspect.signature(verb.function).return_annotation))
    return f"| `{verb.name}` | {arguments} | {result} | {rights(verb)} | {idempotent(verb)} |"


def _argument(parameter: Parameter, hint: Any) -> str:
    return f"`{parameter.name}`: {_type(hint)}{_default(parameter.default)}"


def _default(value: Any) -> str:
    if value is Parameter.empty:
        return ""
    if value is None or isinstance(value, bool | int | float | str):
        return f" = `{json.dumps(value)}`"
    return f" = `{value.value}`" if isinstance(value, Enum) else ", may be left out"


def _type(hint: Any) -> str:
    """A type in terms of JSON."""
    if isinstance(hint, NewType):
        return _type(hint.__supertype__)
    if isinstance(hint, str) or hint in _TYPES:
        return _plain(hint) if isinstance(hint, str) else _TYPES[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [each for each in args if each not in _PLACES]
        places = ["place"] if set(args) >= _PLACES else [_type(each) for each in args if each in _PLACES]
        return " or ".join(dict.fromkeys([*places, *map(_type, kinds)]))
    if origin is Literal:
        return " or ".join(f"`{json.dumps(each)}`" for each in args)
    if origin is None:
        return f"`{hint.__name__}`" if isinstance(hint, type) else _plain(str(hint))
    inner = ", ".join(dict.fromkeys(_type(each) for each in args if each is not Ellipsis))
    if origin is PathLike:
        return "text"
    if origin is tuple and Ellipsis not in args:
        return f"[{', '.join(map(_type, args))}]".replace("[", "\\[")
    if issubclass(origin, Mapping):
        inner = _type(args[1])
        return f"object of ({inner})" if " or " in inner else f"object of {inner}"
    if issubclass(origin, Iterator):
        return f"{inner}, one by one"
    return f"list of {inner}" if issubclass(origin, Iterable) else f"`{origin.__name__}`"


def _verbs_section() -> Iterator[str]:
    yield _VERBS
    nouns = dict.fromkeys(name.rpartition(".")[0] for name in VERBS)
    for noun in sorted(nouns):
        yield f"### Verbs of `{noun or 'store'}`"
        rows = ["| Verb | Arguments | Result | Right | Idempotent |", "|---|---|---|---|---|"]
        rows += [_verb_row(verb) for name, verb in sorted(VERBS.items()) if name.rpartition(".")[0] == noun]
        yield "\n".join(rows)


def _plain(text: str) -> str:
    """Text for a page: nothing outside of backticks that Markdown or HTML would take for its own."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    for number in range(0, len(parts), 2):
        parts[number] = re.sub(r"([*\[_])", r"\\\1", parts[number].replace("<", "&lt;"))
    return "`".join(parts)


def page() -> str:
    """The whole page."""
    grpc, flight, sql = map(parsed, PROTOS)
    parts = [
        _HEAD,
        *_verbs_section(),
        *_proto_section("gRPC", grpc),
        *_proto_section("Arrow Flight", flight),
        *_proto_section("Arrow Flight SQL", sql),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"
