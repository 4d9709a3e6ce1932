"""Warnings that a verb issues in the broker, for the caller in another process."""

from __future__ import annotations

from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.model.misplaced import Misplaced, MisplacedEventsWarning
from anabranch.model.times import TimeWarning, warn_once
from anabranch.model.warn import warn_caller
from anabranch.wire.hints import conform
from anabranch.wire.values import from_json, to_json


def warning_to_json(warning: Warning) -> dict[str, Any]:
    """`kind` and `message`; of events on the wrong side of a cut also `stream` and `misplaced`."""
    shown: dict[str, Any] = {"kind": type(warning).__name__, "message": str(warning)}
    if isinstance(warning, MisplacedEventsWarning):
        shown.update(stream=warning.stream, misplaced=to_json(warning.misplaced))
    return shown


def issue(shown: Any) -> None:
    """Issue a warning of a broker in this process, for the caller of this package. Raises InvalidArgument for anything
    else."""
    members = conform(shown, dict, "a warning")
    message = conform(members.get("message"), str, "a warning's message")
    if members.get("kind") == TimeWarning.__name__:
        warn_once(message, message)
    elif members.get("kind") == MisplacedEventsWarning.__name__:
        misplaced = from_json(members.get("misplaced"))
        if not isinstance(misplaced, Misplaced):
            raise InvalidArgument("expected how many events are misplaced in a warning of misplaced events")
        warn_caller(MisplacedEventsWarning(conform(members.get("stream"), str, "a warning's stream"), misplaced))
    else:
        warn_caller(UserWarning(message))
