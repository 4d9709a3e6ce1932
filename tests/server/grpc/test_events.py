"""Append, Read, Follow and Call over a real connection to a broker process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import grpc
import pyarrow as pa
import pytest

from anabranch.wire.v1 import store_pb2 as v1
from anabranch.wire.values import to_json
from tests.server.grpc.client import Client, error_of

pytestmark = pytest.mark.process
_numbers = count()


def called(client: Client, verb: str, **arguments: Any) -> list[Any]:
    """What a verb returns."""
    answers = client.Call(v1.CallRequest(verb=verb, arguments=json.dumps(arguments).encode()))
    return [json.loads(getattr(each, each.WhichOneof("answer"))) for each in answers]


@pytest.fixture
def stream(client: Client) -> str:
    """A raw stream of the test's own."""
    name = f"iot/raw-{next(_numbers)}"
    called(client, "streams.create", name=name)
    return name


def test_several_verbs_are_called_in_one(client: Client, stream: str) -> None:
    steps = [
        {"name": "found", "call": "streams.get", "arguments": {"name": stream}},
        {"call": "streams.tag", "arguments": {"name": {"$ref": "found.id"}, "tags": {"a": "b"}}},
        {"call": "scopes.list"},
    ]
    ((found, tagged, scopes),) = called(client, "run", steps=steps)
    assert found["id"] == tagged["id"] and tagged["tags"] == {"a": "b"} and scopes[0]["name"] == "iot"
    status, code = refused(
        lambda: called(client, "run", steps=[{"call": "streams.get", "arguments": {"name": "iot/no"}}])
    )
    assert (status, code) == (grpc.StatusCode.NOT_FOUND, "stream_not_found")


def payloads(*given: str) -> list[v1.Event]:
    return [v1.Event(payload=each.encode(), key="k") for each in given]


def read(client: Client, stream: str, **more: Any) -> list[v1.Event]:
    return [event for part in client.Read(v1.ReadRequest(stream=stream, **more)) for event in part.events]


def refused(act: Any) -> tuple[grpc.StatusCode, str]:
    """The status and the code that a call ends with."""
    with pytest.raises(grpc.RpcError) as found:
        act()
    return found.value.code(), error_of(found.value).code


def test_what_is_appended_is_read(client: Client, stream: str) -> None:
    answer = client.Append(v1.AppendRequest(stream=stream, events=payloads("a")))
    assert (answer.events, len(answer.pointers)) == (1, 1)
    answer = client.Append(v1.AppendRequest(stream=stream, events=payloads("b", "c"), atomic=True))
    assert (answer.events, len(answer.pointers), answer.ranges[0].stop - answer.ranges[0].start) == (2, 2, 2)
    found = read(client, stream, meta=True)
    assert [(each.payload, each.key) for each in found] == [(b"a", "k"), (b"b", "k"), (b"c", "k")]
    assert [each.pointer for each in found][1:] == list(answer.pointers)
    assert all(each.time_us and each.appended_us for each in found)
    assert [each.payload for each in read(client, stream, start=found[0].cut)] == [b"b", b"c"]
    assert [each.payload for each in read(client, stream, start=found[1].pointer, limit=1)] == [b"b"]


def test_times_may_be_given_by_how_long_ago_they_are(client: Client, stream: str) -> None:
    client.Append(v1.AppendRequest(stream=stream, events=payloads("a", "b")))
    assert [each.payload for each in read(client, stream, start="-1h", end="-0s")] == [b"a", b"b"]
    assert read(client, stream, end="-1h") == []
    following = client.Follow(v1.FollowRequest(stream=stream, start="-1h"))
    assert next(each.events[0].payload for each in following if each.events) == b"a"
    following.cancel()


def test_a_limit_within_a_batch_ends_with_the_cut_behind_its_last_event(client: Client, stream: str) -> None:
    for pair in ("ab", "cd"):
        client.Append(v1.AppendRequest(stream=stream, events=payloads(*pair)))
    *_, last = client.Read(v1.ReadRequest(stream=stream, limit=3))
    assert [each.payload for each in read(client, stream, start=last.cut)] == [b"d"]


def test_a_read_says_where_it_ended_and_whether_that_was_the_end(client: Client, stream: str) -> None:
    client.Append(v1.AppendRequest(stream=stream, events=payloads("a", "b", "c")))
    *_, last = client.Read(v1.ReadRequest(stream=stream, limit=2))
    assert not last.complete
    *_, end = client.Read(v1.ReadRequest(stream=stream, start=last.cut))
    assert end.complete
    assert [each.payload for each in read(client, stream, start=last.cut)] == [b"c"]


def test_events_with_columns_are_json(client: Client, broker: Any) -> None:

    import anabranch as ab

    name = f"iot/typed-{next(_numbers)}"
    with ab.connect(broker.log.parent / "river") as store:
        store.streams.create(name, schema=pa.schema([("sensor", pa.string()), ("value", pa.float64())]), key="sensor")
    rows = [{"sensor": "a", "value": 1.5}, {"sensor": "b", "value": None}]
    client.Append(v1.AppendRequest(stream=name, events=[v1.Event(json=json.dumps(each).encode()) for each in rows]))
    assert sorted((json.loads(each.json) for each in read(client, name)), key=lambda row: row["sensor"]) == rows
    assert {json.loads(each.json)["sensor"] for each in read(client, name, columns=["sensor"])} == {"a", "b"}
    wrong = v1.AppendRequest(stream=name, events=[v1.Event(payload=b"x")])
    assert refused(lambda: client.Append(wrong)) == (grpc.StatusCode.INVALID_ARGUMENT, "schema_mismatch")


def test_a_producers_request_takes_effect_once(client: Client, stream: str) -> None:
    def send(sequence: int, epoch: int = 0) -> Any:
        number = v1.ProducerNumber(id="p", epoch=epoch, sequence=sequence)
        return client.Append(v1.AppendRequest(stream=stream, events=payloads(f"{sequence}"), producer=number))

    assert not send(0).duplicate
    again = send(0)
    assert again.duplicate and again.events == 1
    assert refused(lambda: send(5)) == (grpc.StatusCode.FAILED_PRECONDITION, "out_of_sequence")
    send(1)
    assert not send(0, epoch=1).duplicate
    assert refused(lambda: send(2)) == (grpc.StatusCode.FAILED_PRECONDITION, "fenced")
    assert [each.payload for each in read(client, stream)] == [b"0", b"1", b"0"]


def test_appends_are_pipelined_and_answered_in_order(client: Client, stream: str) -> None:
    def requests() -> Iterator[v1.AppendStreamRequest]:
        for number in range(200):
            sent = v1.AppendRequest(stream=stream, events=payloads(str(number)))
            if number % 2:
                sent.producer.CopyFrom(v1.ProducerNumber(id="q", sequence=number // 2))
            yield v1.AppendStreamRequest(append=sent)

    answers = list(client.AppendStream(requests()))
    assert len(answers) == 200 and all(each.append.events == 1 for each in answers)
    assert sorted(int(each.payload) for each in read(client, stream)) == list(range(200))


def test_a_refused_request_ends_the_stream_of_appends_behind_what_was_answered(client: Client, stream: str) -> None:
    good = v1.AppendStreamRequest(append=v1.AppendRequest(stream=stream, events=payloads("a")))
    bad = v1.AppendStreamRequest(append=v1.AppendRequest(stream="iot/none", events=payloads("b")))
    answers = client.AppendStream(iter([good, bad]))
    assert next(answers).append.events == 1
    assert refused(lambda: next(answers)) == (grpc.StatusCode.NOT_FOUND, "stream_not_found")


def test_a_follower_gets_history_then_what_comes_and_the_end(client: Client, stream: str) -> None:
    client.Append(v1.AppendRequest(stream=stream, events=payloads("a")))
    parts = client.Follow(v1.FollowRequest(stream=stream))
    assert not next(parts).events
    assert [each.payload for each in next(parts).events] == [b"a"]
    timer = threading.Timer(0.2, lambda: client.Append(v1.AppendRequest(stream=stream, events=payloads("b"))))
    timer.start()
    part = next(parts)
    assert [each.payload for each in part.events] == [b"b"]
    called(client, "streams.seal", name=stream)
    *_, last = parts
    assert last.sealed
    timer.join()


def test_a_read_and_a_follower_get_events_at_the_rate_they_ask_for(client: Client, stream: str) -> None:
    client.Append(v1.AppendRequest(stream=stream, events=payloads(*"abcdef")))
    slow = client.Follow(v1.FollowRequest(stream=stream, events_per_s=0.001))
    assert not next(slow).events
    first = next(slow)
    slow.cancel()
    assert [each.payload for each in first.events] == [b"a"]
    begin = client.Read(v1.ReadRequest(stream=stream, bytes_per_s=0.001, meta=True))
    assert [each.payload for each in next(begin).events] == [b"a"]
    begin.cancel()
    fast = read(client, stream, start=first.cut, events_per_s=100_000.0, bytes_per_s=1e9)
    assert [each.payload for each in fast] == [b"b", b"c", b"d", b"e", b"f"]
    assert refused(lambda: read(client, stream, events_per_s=-1.0)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid_argument",
    )


def test_errors_have_their_status_code_message_and_fields(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as found:
        list(client.Read(v1.ReadRequest(stream="iot/none")))
    error = error_of(found.value)
    assert (found.value.code(), error.code) == (grpc.StatusCode.NOT_FOUND, "stream_not_found")
    assert error.message == found.value.details() and json.loads(error.fields)["stream"] == "iot/none"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (v1.ReadRequest(stream="nothing"), "invalid_name"),
        (v1.ReadRequest(stream="iot/raw", start="yesterday-ish"), "invalid_argument"),
        (v1.ReadRequest(stream="iot/raw", by="noon"), "invalid_argument"),
        (v1.ReadRequest(stream="iot/raw", limit=-1), "invalid_argument"),
        (v1.ReadRequest(stream="iot/raw", before="2026-01-01"), "invalid_argument"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(client: Client, request_: v1.ReadRequest, code: str) -> None:
    if not called(client, "streams.exists", name="iot/raw")[0]:
        called(client, "streams.create", name="iot/raw")
    assert refused(lambda: list(client.Read(request_))) == (grpc.StatusCode.INVALID_ARGUMENT, code)


def test_verbs_return_results_and_lists(client: Client, stream: str) -> None:
    assert stream in json.dumps(called(client, "streams.list"))
    (found,) = called(client, "streams.exists", name=stream)
    assert found is True
    assert refused(lambda: called(client, "streams.conjure"))[0] is grpc.StatusCode.INVALID_ARGUMENT
    bad = v1.CallRequest(verb="streams.list", arguments=b"[1")
    assert refused(lambda: list(client.Call(bad)))[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_a_call_reports_warnings_and_if_asked_its_progress(client: Client) -> None:
    name, times = f"iot/misplaced-{next(_numbers)}", [30, 10, 40]
    columns = to_json(pa.schema([("at", pa.timestamp("us", "UTC"))]))
    called(client, "streams.create", name=name, schema=columns, time="at")
    rows = [v1.Event(json=json.dumps({"at": time}).encode()) for time in times]
    client.Append(v1.AppendRequest(stream=name, events=rows))
    arguments = json.dumps({"name": name, "time": 20, "by": "event"}).encode()
    warning, result = client.Call(v1.CallRequest(verb="cuts.at", arguments=arguments))
    assert (warning.WhichOneof("answer"), result.WhichOneof("answer")) == ("warning", "result")
    told = json.loads(warning.warning)
    assert (told["kind"], told["stream"]) == ("MisplacedEventsWarning", name)
    assert "1 event after the cut with an earlier time" in told["message"]

    arguments = json.dumps({"source": name, "target": f"{name}-copy", "where": "true"}).encode()
    answers = list(client.Call(v1.CallRequest(verb="streams.copy", arguments=arguments, progress=True)))
    kinds = [each.WhichOneof("answer") for each in answers]
    assert kinds[-1] == "result"
    assert {"started", "progress"} <= set(kinds)
    last = [each.progress for each in answers if each.WhichOneof("answer") == "progress"][-1]
    assert last.done == last.total > 0


def test_a_load_policy_refuses_or_samples_what_exceeds_its_rate(client: Client) -> None:
    name, rate = f"iot/limited-{next(_numbers)}", {"$type": "Rate", "events_per_s": 5}
    called(
        client, "streams.create", name=name, schema=to_json(pa.schema([("n", pa.int64()), ("weight", pa.float64())]))
    )
    many = [v1.Event(json=json.dumps({"n": n}).encode()) for n in range(1_000)]
    called(client, "policies.load", name=name, policy={"$type": "SampleAbove", "rate": rate})
    answer = client.Append(v1.AppendRequest(stream=name, events=many))
    assert 0 < answer.events == len(answer.sampled.rows) == len(answer.pointers) < 100
    assert (answer.sampled.of, answer.sampled.weight) == (1_000, 128)
    numbered = v1.AppendRequest(stream=name, events=many, producer=v1.ProducerNumber(id="p", epoch=0, sequence=0))
    first, again = client.Append(numbered), client.Append(numbered)
    assert again.duplicate
    assert first.sampled == again.sampled
    assert first.sampled.weight * first.events == pytest.approx(1_000)

    other = f"iot/limited-{next(_numbers)}"
    called(client, "streams.create", name=other, schema=to_json(pa.schema([("n", pa.int64())])))
    called(client, "policies.load", name=other, policy={"$type": "RejectAbove", "rate": rate})
    assert client.Append(v1.AppendRequest(stream=other, events=many)).events == 1_000
    for events in (many[:1], many[:2]):
        refusal = refused(partial(client.Append, v1.AppendRequest(stream=other, events=events)))
        assert refusal == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limited")
