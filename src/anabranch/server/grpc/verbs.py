"""Call: every management verb, by `anabranch.server.calls`, as in all front ends."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.server.answers import Message, answer
from anabranch.server.grpc.call import GrpcCall
from anabranch.wire.v1 import store_pb2 as v1
from anabranch.wire.values import parse_bytes, to_bytes

_MESSAGES_AT_A_TIME: Final = 256


async def call_verb(call: GrpcCall, request: v1.CallRequest) -> None:
    """Send what the verb returns."""
    arguments = parse_bytes(request.arguments) if request.arguments else {}
    if not isinstance(arguments, dict):
        raise InvalidArgument("expected the arguments as a JSON object")
    front = call.front
    reports = request.progress
    messages = await front.run_long(
        partial(answer, front.broker, call.principal, request.verb, arguments, reports=reports, queries=front.queries)
    )
    # Progress is sent as it comes; items only in pieces, because each piece costs a thread.
    count = 1 if reports else _MESSAGES_AT_A_TIME
    while found := await front.run_long(lambda: list(islice(messages, count))):
        for message in found:
            if message.kind != "end":
                await call.send(_response(message))


def _response(message: Message) -> v1.CallResponse:
    if message.kind == "progress":
        what, done, total = message.value
        return v1.CallResponse(progress=v1.CallProgress(what=what, done=done, total=total))
    answer = v1.CallResponse()
    setattr(answer, message.kind, to_bytes(message.value))
    return answer
