"""Every error of the store has one stable code and statuses, and comes back as the class it was."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import errors
from anabranch.wire import errors as wire
from anabranch.wire.values import parse_bytes, to_bytes

CLASSES = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.AnabranchError)]
GRPC = {
    "ABORTED", "ALREADY_EXISTS", "DATA_LOSS", "DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT",
    "NOT_FOUND", "OUT_OF_RANGE", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE",
    "UNIMPLEMENTED", "UNKNOWN",
}  # fmt: skip


def test_every_error_has_a_code_of_its_own() -> None:
    codes = {each: wire.status_of(each.__new__(each, "x")) for each in CLASSES}
    assert len({status.code for status in codes.values()}) == len(CLASSES)
    for each, status in codes.items():
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in each.__name__).removeprefix("_")
        assert status.code == ("error" if each is errors.AnabranchError else snake)
        assert 400 <= status.http < 600 and status.grpc in GRPC


@pytest.mark.parametrize(
    "error",
    [
        errors.StreamNotFound("iot/raw", ["iot/row"]),
        errors.StreamRenamed("iot/a", "iot/b"),
        errors.Truncated("iot/raw", {"0.0": 4}),
        errors.TooLarge("the event", 9, 8),
        errors.SchemaMismatch("no", column="a", row=3),
        errors.RateLimited("later", 1.5),
        errors.StoreBusy("busy"),
        errors.MissingExtra("SQL", "query"),
        errors.Fenced(1, 2),
        errors.JobStopped("a", "failed", "why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_with_its_class_message_and_fields(error: errors.AnabranchError) -> None:
    found = wire.error_from_json(parse_bytes(to_bytes(wire.error_to_json(error))))
    assert type(found) is type(error) and str(found) == str(error)
    assert vars(found) == vars(error)


def test_the_message_of_an_unexpected_error_stays_in_the_broker() -> None:
    sent = wire.error_to_json(RuntimeError("password=secret"))
    assert sent["code"] == "internal" and "secret" not in str(sent)
    assert type(wire.error_from_json(sent)) is errors.AnabranchError


def test_a_timeout_stays_one() -> None:
    assert isinstance(wire.error_from_json(wire.error_to_json(TimeoutError("too long"))), TimeoutError)


JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "code": st.sampled_from(["stream_not_found", "disk_full", "missing_extra", "timeout", "?"]) | JSON,
            "message": st.text() | JSON,
            "fields": st.dictionaries(
                st.sampled_from(["args", "__class__", "stream", "errno", "with_traceback"]), JSON
            ),
        },
    )
    | JSON
)
def test_any_answer_is_an_error_that_can_be_shown(sent: Any) -> None:
    found = wire.error_from_json(sent)
    assert isinstance(found, errors.AnabranchError | TimeoutError)
    str(found)
