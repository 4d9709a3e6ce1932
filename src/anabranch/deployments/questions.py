"""Questions about SQL of queries: asked by any client, also through a broker, and answered by a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.catalog.state.query_question import QUERY_QUESTION, QueryQuestion, StateWanted
from anabranch.catalog.state.query_version import QueryFile
from anabranch.errors import AnabranchError, InvalidArgument, InvalidSql, StoreUnavailable
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

__all__ = ["answer", "ask", "open_questions", "take"]

_POLL_S: Final = 0.1


def ask(
    catalog: Catalog,
    runtime: Runtime,
    kind: Literal["validate", "plan", "state"],
    text: str = "",
    parameters: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    wanted: StateWanted | None = None,
    files: tuple[QueryFile, ...] = (),
) -> QueryQuestion:
    """Ask, and wait for the answer at most `limits.DEPLOYMENT_ANSWER_S`. Raises InvalidSql with the line, InvalidArgument,
    StoreUnavailable if no host answers."""
    began = runtime.clock.now()
    until = Micros(began + round(limits.DEPLOYMENT_ANSWER_S * 1e6))
    question = QueryQuestion(token(runtime.ids), kind, name, text, dict(parameters or {}), until, files, wanted=wanted)
    with catalog.writing(_subject(question.id)) as txn:
        txn.put_state(QUERY_QUESTION, question.id, question)
    try:
        while runtime.clock.now() < until:
            with catalog.reading() as reading:
                found = reading.state(QUERY_QUESTION, question.id)
            if found is None:
                break
            if not found.taken and runtime.clock.now() - began > limits.DEPLOYMENT_HEARD_S * 1e6:
                raise StoreUnavailable(
                    f"no host has taken the question within {limits.DEPLOYMENT_HEARD_S:g} s; start one with: anabranch "
                    "queries serve"
                )
            if found.answered:
                return _checked(found)
            runtime.tasks.sleep(_POLL_S)
    finally:
        _drop(catalog, question.id)
    raise StoreUnavailable(f"no host has answered within {limits.DEPLOYMENT_ANSWER_S:g} s")


def open_questions(catalog: Catalog, now: Micros) -> list[QueryQuestion]:
    """The questions that hosts have not answered yet. Those that no caller waits for any more are removed."""
    with catalog.reading() as txn:
        found = [question for _, question in txn.states(QUERY_QUESTION)]
    for old in found:
        if old.until < now:
            _drop(catalog, old.id)
    return [question for question in found if question.until >= now and not question.answered]


def take(catalog: Catalog, question: QueryQuestion) -> None:
    """Tell the caller that a host is answering."""
    with catalog.writing(_subject(question.id)) as txn:
        found = txn.state(QUERY_QUESTION, question.id)
        if found is not None and not found.taken:
            txn.put_state(QUERY_QUESTION, question.id, replace(found, taken=True))


def answer(catalog: Catalog, question: QueryQuestion, find: Callable[[], Mapping[str, Any]]) -> None:
    """Answer with the members of the question that `find` returns, or with the error that it raises."""
    changes: Mapping[str, Any]
    try:
        changes = find()
    except InvalidSql as exc:
        changes = {"error": str(exc), "error_line": exc.line}
    except AnabranchError as exc:
        changes = {"error": str(exc)}
    with catalog.writing(_subject(question.id)) as txn:
        if txn.state(QUERY_QUESTION, question.id) is not None:
            txn.put_state(QUERY_QUESTION, question.id, replace(question, **changes))


def _checked(found: QueryQuestion) -> QueryQuestion:
    if found.error is None:
        return found
    if found.error_line is None:
        raise InvalidArgument(found.error)
    raise InvalidSql(found.error.removeprefix(f"line {found.error_line}: "), found.error_line)


def _drop(catalog: Catalog, ident: str) -> None:
    with catalog.writing(_subject(ident)) as txn:
        if txn.state(QUERY_QUESTION, ident) is not None:
            txn.drop_state(QUERY_QUESTION, ident)


def _subject(ident: str) -> str:
    return f"{QUERY_QUESTION.name} {ident}"
