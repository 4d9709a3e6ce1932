"""Read and Follow: the events of a stream as messages."""

from __future__ import annotations

from functools import partial

from anabranch.errors import Closed, InvalidArgument
from anabranch.model.ids import Micros
from anabranch.model.rate import Rate
from anabranch.model.stream import StreamInfo
from anabranch.reading.bounds import cut_behind
from anabranch.server.abandoned import open_in_thread
from anabranch.server.events.page import Range, absolute, open_range, place, rate_of, time_kind_of
from anabranch.server.grpc.call import GrpcCall
from anabranch.server.grpc.errors import draining
from anabranch.server.grpc.rows import columns_of, encode
from anabranch.server.rights import StreamRight
from anabranch.server.tail.paced import PacedParts
from anabranch.wire.v1 import store_pb2 as v1


async def read(call: GrpcCall, request: v1.ReadRequest, info: StreamInfo) -> None:
    """Send the events of a range. Each batch is read once the caller has taken the one before."""
    front = call.front
    asked = _range_of(request, info, front.store.runtime.clock.now())
    part = partial(encode, raw=info.schema.raw, columns=None, meta=asked.meta)
    reader = await open_in_thread(front.threads, lambda: open_range(front.store, info, asked))
    left, parts = asked.limit, PacedParts(asked.rate, front.tails.closing)
    position = reader.position
    right = StreamRight(front.store, front.guard, call.principal, info.id, "read", verb="read")
    try:
        while left is None or left > 0:
            batch = await front.run(reader.read)
            if batch is None:
                await call.send(v1.ReadResponse(cut=str(reader.position), complete=True))
                return
            position = reader.position
            if left is not None and batch.num_rows > left:
                batch = batch.slice(0, left)
                position = cut_behind(batch, position)
            left = None if left is None else left - batch.num_rows
            async for paced in parts.of(batch, position):
                await front.recheck(right)
                front.guard.authorize(call.principal, "read", str(info.name), verb="read")
                if paced is None:
                    continue
                front.guard.admit(call.principal, calls=0, bytes_=paced.batch.nbytes)
                for message in await front.run(partial(part, *paced)):
                    await call.send(message)
                if front.draining:
                    raise draining()
    except Closed:
        raise draining() from None
    finally:
        reader.close()


def _range_of(request: v1.ReadRequest, info: StreamInfo, now: Micros) -> Range:
    if request.limit < 0:
        raise InvalidArgument("expected limit as a number of at least 1, or 0 for all")
    if bool(request.not_before) != bool(request.before):
        raise InvalidArgument("pass both not_before and before, or neither")
    return Range(
        start=absolute(request.start or "head", now),
        end=absolute(request.end, now) if request.end else None,
        by=time_kind_of(request.by or "append"),
        columns=columns_of(info.schema, request.columns),
        between=(absolute(request.not_before, now), absolute(request.before, now)) if request.before else None,
        limit=request.limit or None,
        meta=request.meta,
        rate=_rate_of(request),
    )


def _rate_of(request: v1.ReadRequest | v1.FollowRequest) -> Rate | None:
    return rate_of(request.events_per_s or None, request.bytes_per_s or None)


async def follow(call: GrpcCall, request: v1.FollowRequest, info: StreamInfo) -> None:
    """Send events as they come, by the tail that all followers of the stream share."""
    front = call.front
    columns = columns_of(info.schema, request.columns)
    names = None if columns is None else tuple(columns)
    part = partial(encode, raw=info.schema.raw, columns=names, meta=request.meta)
    form = ("grpc", names, request.meta)
    try:
        start = place(absolute(request.start or "head", front.store.runtime.clock.now()))
        by = time_kind_of(request.by or "append")
        follower = await front.tails.follow(info, start, by=by, rate=_rate_of(request))
    except Closed:
        raise draining() from None
    try:
        await call.send(v1.FollowResponse(cut=str(follower.position)))
        right = StreamRight(front.store, front.guard, call.principal, info.id, "read", verb="follow")
        async for batch in follower.batches():
            if front.draining:
                raise draining()
            await front.recheck(right)
            if batch is None:
                continue
            for message in batch.encoded(form, part):
                await call.send(message)
        await call.send(v1.FollowResponse(cut=str(follower.position), sealed=True))
    except Closed:
        raise draining() from None
    finally:
        follower.close()
