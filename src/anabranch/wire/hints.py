"""Checks values from outside against the types that a method or a dataclass declares."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from anabranch.errors import InvalidArgument, InvalidCut, InvalidName, InvalidPointer
from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.streams.policies import Unset

_ERRORS: Final[Mapping[Any, type[InvalidArgument]]] = {
    EventPointer: InvalidPointer,
    StreamCut: InvalidCut,
    StreamName: InvalidName,
}
_SCALARS: Final[Mapping[Any, str]] = {
    None: "null",
    types.NoneType: "null",
    str: "text",
    os.PathLike: "text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    bytes: "bytes",
}
_FOUND: Final = (bool, str, int, float, bytes)
_OF_ARRAYS: Final = ("builtins", "collections.abc")


@lru_cache(maxsize=1024)
def hints_of(kind: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of a class's fields or a function's arguments; an empty mapping if a type can't be resolved
    at run time."""
    try:
        return get_type_hints(kind)
    except NameError:  # imported only for type checkers
        return {}


def conform(value: Any, hint: Any, what: str) -> Any:
    """The value, converted to the type: lists become the tuples or sets, and integers the floats, that the type names.
    `what` names the value in the message. Raises InvalidArgument, or InvalidName, InvalidPointer or InvalidCut if the
    type is a StreamName, EventPointer or StreamCut."""
    found, result = _fit(value, hint)
    if not found:
        kind = next((_ERRORS[each] for each in get_args(hint) if each in _ERRORS), InvalidArgument)
        part, wanted, name = _misfit(value, hint, what)
        raise kind(f"expected {name} as {_text(wanted)}, got {_name_of(part)}")
    return result


def _misfit(value: Any, hint: Any, what: str) -> tuple[Any, Any, str]:
    """The innermost member or item that does not fit, its type and its name; the value itself if the type
    does not tell which item is wrong."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    alike = [each for each in kinds if _is_alike(value, each)]
    if len(alike) == 1:
        wanted = (get_args(alike[0]) or (Any,))[-1]
        parts = (
            ((f"member {shown(key)}", item) for key, item in value.items())
            if isinstance(value, Mapping)
            else ((f"item {number}", item) for number, item in enumerate(value, 1))
        )
        for name, item in parts:
            if not _fit(item, wanted)[0]:
                return _misfit(item, wanted, f"{name} of {what}")
    return value, hint, what


def _is_alike(value: Any, hint: Any) -> bool:
    """Whether both are objects, or both are arrays whose items are all of one type."""
    origin, args = get_origin(hint), get_args(hint)
    if not isinstance(origin, type) or not issubclass(origin, Collection | Iterable):
        return False
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    return isinstance(value, list) and len(args) == 1


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    if isinstance(hint, TypeVar) or hint is Any or hint is object:
        return True, value
    if isinstance(hint, NewType):
        return _fit(value, hint.__supertype__)
    origin = get_origin(hint)
    if origin is not None:
        return _fit_generic(value, origin, get_args(hint))
    if hint is None or hint is types.NoneType:
        return value is None, value
    if hint is float:
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        return ok, _to_float(value) if ok else value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if isinstance(hint, type):
        return _is_instance(value, hint), value
    return False, value


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError as exc:
        raise InvalidArgument("a number is too large") from exc


def _fit_generic(value: Any, origin: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    if origin in (Union, types.UnionType):
        # In the order of the type: the first that fits decides what the value becomes.
        for each in args:
            found, result = _fit(value, each)
            if found:
                return True, result
        return False, value
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in args), value
    if origin is type:
        return False, value
    if origin in (tuple, frozenset, set, list) or issubclass(origin, Collection | Iterable):
        if issubclass(origin, Mapping):
            return _fit_mapping(value, args)
        return _fit_items(value, origin, args)
    return (_is_instance(value, origin), value) if isinstance(origin, type) else (False, value)


def _fit_mapping(value: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    if not isinstance(value, Mapping):
        return False, value
    key, item = args or (Any, Any)
    pairs = [(_fit(k, key), _fit(v, item)) for k, v in value.items()]
    return all(k[0] and v[0] for k, v in pairs), {k[1]: v[1] for k, v in pairs}


def _fit_items(value: Any, origin: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    if type(value) not in (list, tuple, set, frozenset):
        return False, value
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(value) != len(args):
            return False, value
        wanted = list(args)
    else:
        wanted = [args[0] if args else Any] * len(value)
    items = [_fit(item, each) for item, each in zip(value, wanted, strict=True)]
    make = origin if origin in (tuple, frozenset, set, list) else type(value)
    try:
        return all(found for found, _ in items), make(item for _, item in items)
    except TypeError:  # an item that can't be hashed
        return False, value


def _is_instance(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that can't be checked at run time: no value from outside is accepted for it
        return False


def _text(hint: Any) -> str:
    """The type in the words of JSON."""
    if isinstance(hint, NewType):
        return _text(hint.__supertype__)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_text(each) for each in args if each is not Unset))
    if origin is Literal:
        return " or ".join(map(shown, args))
    kind = origin or hint
    return _SCALARS.get(kind) or _class_text(kind)


def _class_text(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "an object"
    if isinstance(kind, type) and kind.__module__ in _OF_ARRAYS and issubclass(kind, Collection | Iterable):
        return "an array"
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _name_of(value: Any) -> str:
    """What the value is, in the words of JSON."""
    if value is None:
        return "null"
    return next((_SCALARS[kind] for kind in _FOUND if isinstance(value, kind)), "") or _class_text(type(value))


def shown(value: Any) -> str:
    """The beginning of a value as JSON, for a message."""
    return f"{json.dumps(value, ensure_ascii=False, default=repr):.100}"
