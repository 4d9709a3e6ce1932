"""DoAction: the verbs of the store. The kind of an action is the verb's name (`streams.copy`), its body JSON:

    {"arguments": {"source": "iot/raw", "target": "iot/copy"}, "progress": true}

Each result is a JSON object with one member, a message of `anabranch.server.answers` such as `{"progress": ["files", 1, 3]}`.
The last one has the member `result`, null after `item`s."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.security.guard import Principal
from anabranch.server.answers import answer
from anabranch.server.broker import Broker
from anabranch.server.queries import CallersQueries
from anabranch.server.steps import SUMMARY
from anabranch.wire.hints import conform
from anabranch.wire.steps import RUN
from anabranch.wire.values import parse_bytes, to_bytes
from anabranch.wire.verbs import VERBS, summary_of

_MEMBERS: Final = {"arguments", "progress"}


class StoreActions:
    """Serves the verbs of a broker's store, and runs of them with their queries."""

    def __init__(self, broker: Broker, queries: CallersQueries) -> None:
        self._broker = broker
        self._queries = queries

    def run(self, principal: Principal, kind: str, body: bytes) -> Iterator[bytes]:
        """The results of one action, made while they are taken. Raises as `answer`."""
        request = conform(parse_bytes(body or b"{}"), dict, "the body of an action")
        if unknown := next((each for each in request if each not in _MEMBERS), None):
            raise InvalidArgument(
                f"unknown member '{unknown:.100}' in the body of an action; expected arguments and progress"
            )
        reports = conform(request.get("progress", False), bool, "'progress'")
        arguments = request.get("arguments", {})
        messages = answer(self._broker, principal, kind, arguments, reports=reports, queries=self._queries)
        return (to_bytes({"result" if message.kind == "end" else message.kind: message.value}) for message in messages)

    def kinds(self) -> list[tuple[str, str]]:
        """The verbs, each with the first sentence of its documentation."""
        verbs = [(each.name, summary_of(each.function)) for each in VERBS.values()]
        return [*verbs, (RUN, SUMMARY)]
