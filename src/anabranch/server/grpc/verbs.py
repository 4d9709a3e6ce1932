"""Call: every management verb, by the one door that all front ends use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from anabranch.errors import InvalidArgument
from anabranch.server.calls import run
from anabranch.server.grpc.call import GrpcCall
from anabranch.wire.v1 import store_pb2 as v1
from anabranch.wire.values import parse_bytes, to_bytes, to_json

_ITEMS_AT_A_TIME: Final = 256


async def call_verb(call: GrpcCall, request: v1.CallRequest) -> None:
    """Send what the verb returns."""
    arguments = parse_bytes(request.arguments) if request.arguments else {}
    if not isinstance(arguments, dict):
        raise InvalidArgument("the arguments are expected as a JSON object")
    front = call.front
    result = await front.run_long(partial(run, front.broker, call.principal, request.verb, arguments, admit=False))
    if not isinstance(result, Iterator):
        await call.send(v1.CallResponse(result=await front.run_long(lambda: to_bytes(to_json(result)))))
        return
    while found := await front.run_long(partial(_step, result)):
        for item in found:
            await call.send(v1.CallResponse(item=item))


def _step(items: Iterator[Any]) -> list[bytes]:
    return [to_bytes(to_json(item)) for item in islice(items, _ITEMS_AT_A_TIME)]
