"""Who may have hosts run Python code: the right `code`, which not even an admin has without being given it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.errors import PermissionDenied, QueryNotFound, Unauthenticated
from anabranch.security.guard import Principal
from anabranch.security.tokens import Tokens
from anabranch.server import calls
from anabranch.server.broker import Broker
from anabranch.wire.values import to_json
from tests.server.access.credentials import World, world
from tests.waiting import until
from tests.wheels import wheel

WHEEL = {"scoring-1.0-py3-none-any.whl": wheel({"scoring.py": ""})}
SHOUTED = {"SCORING-1.0-PY3-NONE-ANY.WHL": wheel({"scoring.py": ""})}
MODEL = {"model.json": b"{}"}


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("code")) as opened:
        yield opened


def caller(made: World, *roles: str) -> Principal:
    token = Tokens(made.store.changes).issue("+".join(roles), roles=list(roles), on=["*"]).token.reveal()
    found: list[Principal] = []

    def known() -> bool:
        try:
            found.append(made.guard.authenticate(token=token, certificate=None, peer="test"))
        except Unauthenticated:
            return False
        return True

    until(known)
    return found[-1]


def call(made: World, who: Principal, verb: str, **arguments: Any) -> Any:
    given = {name: to_json(value) for name, value in arguments.items()}
    return calls.run(Broker(made.store, made.guard), who, f"queries.{verb}", given)


def test_python_code_needs_the_right_besides_the_one_to_deploy(made: World) -> None:
    admin, coder, both = caller(made, "admin"), caller(made, "coder"), caller(made, "admin", "coder")
    for files in (WHEEL, SHOUTED, {**MODEL, **WHEEL}):
        with pytest.raises(PermissionDenied, match="'admin' may not deploy Python code"):
            call(made, admin, "deploy", name="q", text="one", files=files)
        with pytest.raises(PermissionDenied, match="'coder' may not administer the store"):
            call(made, coder, "deploy", name="q", text="one", files=files)
    assert made.store.queries.list() == []
    assert call(made, admin, "deploy", name="p", text="one", files=MODEL).version == 1
    assert call(made, both, "deploy", name="q", text="one", files=WHEEL).version == 1


def test_python_code_that_is_kept_needs_the_right_too(made: World) -> None:
    admin, both = caller(made, "admin"), caller(made, "admin", "coder")
    made.store.queries.deploy("q", "one", files=WHEEL)
    made.store.queries.deploy("p", "one", files=MODEL)
    for verb in ("upgrade", "replay"):
        with pytest.raises(PermissionDenied, match="may not deploy Python code"):
            call(made, admin, verb, name="q", text="two")
        with pytest.raises(PermissionDenied, match="may not deploy Python code"):
            call(made, admin, verb, name="p", text="two", files=WHEEL)
    assert call(made, admin, "upgrade", name="p", text="two").version == 2
    assert call(made, admin, "upgrade", name="q", text="two", files={}).version == 2
    assert call(made, both, "rollback", name="q").version == 1
    assert call(made, both, "upgrade", name="q", text="three").version == 3
    assert (
        call(made, admin, "rollback", name="q", version=1).version == 1
    )  # what runs then was deployed by who had the right


def test_a_name_that_means_nothing_is_no_code(made: World) -> None:
    with pytest.raises(QueryNotFound):
        call(made, caller(made, "admin"), "upgrade", name="nothing", text="two")
