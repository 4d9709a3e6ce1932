"""The latest event of a key: of a stream, or of the results of a query."""

from __future__ import annotations

from starlette.responses import Response

from anabranch.errors import InvalidArgument
from anabranch.model.stream import StreamInfo
from anabranch.model.times import to_datetime
from anabranch.server.events.row_encoder import encode_rows
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal


async def latest_event(call: HttpCall) -> Response:
    """The last event with a routing key. `GET /v1/streams/{scope}/{name}/latest?key=…` answers with a row of the stream."""
    return await latest_of(call, call.info)


async def latest_of(call: HttpCall, info: StreamInfo, *, by_time: bool = False) -> Response:
    """The same of a stream that isn't named by the path. For `by_time` see `Store.latest`."""
    key = call.text("key")
    if key is None:
        raise InvalidArgument("expected the routing key of an event as ?key=…")
    found = await call.front.run_long(lambda: call.front.store.latest(info.name, key, by_time=by_time))
    if found is None:
        raise HttpRefusal(404, "event_not_found", f"'{info.name}' has no event with key '{key:.200}'")
    (body,) = encode_rows(found.row)
    assert found.appended_us is not None, "it was read from a stream"
    appended = to_datetime(found.appended_us).isoformat()
    headers = {"Anabranch-Pointer": str(found.pointer), "Anabranch-Appended": appended}
    return Response(body, media_type="application/json", headers=headers)
