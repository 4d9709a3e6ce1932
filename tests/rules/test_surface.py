"""The public surface: what `anabranch` offers is what it says it offers, and the tree of errors is the one drawn."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from anabranch import errors

SOURCE = Path(anabranch.__file__)


def imported_for_types() -> set[str]:
    """The names that type checkers see."""
    tree = ast.parse(SOURCE.read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.asname or alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_all_is_what_type_checkers_see_and_what_can_be_loaded() -> None:
    assert set(anabranch.__all__) == imported_for_types() == {*anabranch._PLACES, "errors"}
    assert len(anabranch.__all__) == len(set(anabranch.__all__))
    assert set(anabranch.__all__) <= set(dir(anabranch))


def test_every_name_loads_and_is_the_one_defined_there() -> None:
    for name in anabranch.__all__:
        value = getattr(anabranch, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__name__ == name and value.__module__ == f"anabranch.{anabranch._PLACES[name]}"
            assert value.__doc__, f"{name} says nothing of itself"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(anabranch, "Kafka")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, anabranch; print([m for m in ('pyarrow', 'numpy', 'apsw') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# errors


def classes() -> dict[str, type[BaseException]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.AnabranchError)
    }


def drawn() -> dict[str, set[str]]:
    """The tree in the docstring: for each class, its parents."""
    assert errors.__doc__ is not None
    lines = errors.__doc__.splitlines()
    parents: dict[str, set[str]] = {"AnabranchError": set()}
    stack = ["AnabranchError"]
    for line in lines[lines.index("AnabranchError") + 1 :]:
        match = re.match(r"((?:│   |    )*)[├└]── (.*)", line)
        if match is None:
            continue
        depth, text = len(match[1]) // 4 + 1, match[2]
        first = re.match(r"[A-Z]\w+", text)
        assert first is not None, line
        del stack[depth:]
        siblings = [name for name in re.findall(r"\b[A-Z]\w+", text.split("  ")[0]) if name in classes()]
        for name in siblings:
            parents[name] = {stack[-1]}
        if "  " in text and len(siblings) == 1:  # what stands behind the gap are its kinds, if they are classes
            for name in re.findall(r"\b[A-Z]\w+", text.split("  ", 1)[1]):
                if name in classes():
                    parents[name] = {siblings[0]}
        if also := re.search(r"\(also (\w+)\)", text):
            parents[siblings[0]].add(also[1])
        stack.append(siblings[0])
    return parents


def test_the_tree_of_errors_is_the_one_drawn() -> None:
    actual = {
        name: {base.__name__ for base in value.__bases__} - ({"Exception"} if name == "AnabranchError" else set())
        for name, value in classes().items()
    }
    assert drawn() == actual


def test_all_errors_are_exported_and_say_what_they_mean() -> None:
    assert set(errors.__all__) == set(classes())
    assert errors.__all__ == sorted(errors.__all__)
    for value in classes().values():
        assert value.__doc__


def sample(kind: type[errors.AnabranchError]) -> errors.AnabranchError:
    if not inspect.isfunction(kind.__init__):  # its only argument is the sentence
        return kind("something is wrong")
    values = {"int": 7, "Mapping[str, int]": {"0.0": 7}}
    wanted = list(inspect.signature(kind).parameters.values())
    assert wanted
    return kind(*(values.get(each.annotation, each.name) for each in wanted if each.kind is not each.KEYWORD_ONLY))


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_comes_through_a_pickle_as_it_is_under_its_public_name(name: str) -> None:
    error = sample(getattr(errors, name))
    error.add_note("a note")
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error) and type(there).__module__ == "anabranch.errors"
    assert (str(there), there.args, vars(there)) == (str(error), error.args, vars(error))


def test_an_errors_text_is_one_sentence_for_a_person() -> None:
    samples = [
        errors.StoreNotFound("./river"),
        errors.ScopeNotFound("iot"),
        errors.StreamNotFound("iot/raw"),
        errors.TooLarge("an event", 9, 5),
        errors.Fenced(1, 2),
        errors.StreamSealed("iot/raw"),
        errors.FormatTooNew("the catalog", 2, 1),
        errors.DiskFull("no space is left"),
        errors.Closed("writer"),
    ]
    for each in samples:
        assert re.fullmatch(r"[^\n]{8,200}", str(each)), str(each)
        assert not str(each).startswith(("'", "(", "["))
