"""Object stores that answer badly, late or never, and what is then said. The clock is one that only waiting moves."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.blobs.address import parse
from anabranch.blobs.objects import ObjectBlobs
from anabranch.errors import AlreadyExists, BlobMissing, InvalidArgument, ReadOnlyStore, StoreUnavailable
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.runtime.tasks import ThreadTasks
from tests.s3_server import Exchange, Proxy, Spoil, fresh_url

KEY = "commits/0000000000000001-00000000000000000000000a.arrow"
SECRET = "a-very-secret-key"  # as tests/s3_server.py puts it into the environment
DEADLINE_S = 30.0


class WaitingClock(ThreadTasks):
    """Time that passes while somebody sleeps, and only then."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> Micros:
        return Micros(int(sum(self.slept) * 1e6))

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as proxy:
        yield proxy


@pytest.fixture
def waits() -> WaitingClock:
    return WaitingClock()


@pytest.fixture
def blobs(proxy: Proxy, waits: WaitingClock) -> ObjectBlobs:
    return opened(fresh_url(port=proxy.port), waits)


def opened(url: str, waits: WaitingClock, *, request_s: float = 20.0) -> ObjectBlobs:
    settings = Settings(blob_deadline_s=DEADLINE_S, blob_request_s=request_s)
    return ObjectBlobs(parse(url), Runtime(clock=waits, tasks=waits, settings=settings))


def first(times: int, spoil: Spoil, method: str = "") -> Callable[[Exchange], Spoil | None]:
    """Spoils the first requests of a method for each object."""
    return lambda exchange: spoil if exchange.seen < times and exchange.method.startswith(method) else None


def told(error: BaseException) -> str:
    """All that a log would show of an error, its causes too."""
    return "".join(traceback.format_exception(error))


PASSING = {
    "500": Spoil(500, code="InternalError"),
    "503": Spoil(503, code="SlowDown"),
    "429": Spoil(429, code="TooManyRequests"),
    "cut off": Spoil(),
    "landed, but answered 500": Spoil(500, forward=True),
    "landed, but cut off": Spoil(forward=True),
}


@pytest.mark.parametrize("spoil", PASSING.values(), ids=PASSING.keys())
def test_what_passes_is_waited_out(proxy: Proxy, blobs: ObjectBlobs, waits: WaitingClock, spoil: Spoil) -> None:
    proxy.spoil = first(3, spoil)
    blobs.put(KEY, [b"one ", b"two"])
    assert blobs.get(KEY).to_pybytes() == b"one two"
    assert blobs.get(KEY, 4, 3).to_pybytes() == b"two"
    assert [(blob.key, blob.size) for blob in blobs.list("commits/")] == [(KEY, 7)]
    blobs.delete(KEY)
    assert blobs.size(KEY) is None
    assert len(waits.slept) >= 3  # so often the first call alone was spoiled


def test_pauses_grow_and_differ_and_end_with_the_deadline(
    proxy: Proxy, blobs: ObjectBlobs, waits: WaitingClock
) -> None:
    proxy.spoil = lambda exchange: Spoil(503, code="SlowDown")
    with pytest.raises(StoreUnavailable, match="it answered 503 SlowDown"):
        blobs.put(KEY, [b"x"])
    assert 5 < len(waits.slept) < 15
    assert DEADLINE_S - 10 < sum(waits.slept) <= DEADLINE_S  # the last attempt begins at the deadline
    assert all(later > earlier for earlier, later in zip(waits.slept[:6:2], waits.slept[2:6:2], strict=False))
    assert len({round(pause, 6) for pause in waits.slept}) == len(waits.slept)


@pytest.mark.slow
def test_a_server_that_never_answers_is_given_up_and_asked_again(proxy: Proxy, waits: WaitingClock) -> None:
    blobs = opened(fresh_url(port=proxy.port), waits, request_s=1.0)
    proxy.spoil = first(1, Spoil(mute=True))
    blobs.put(KEY, [b"x"])
    assert blobs.get(KEY).to_pybytes() == b"x"
    proxy.spoil = lambda exchange: Spoil(mute=True)
    waits.slept.append(DEADLINE_S)  # a call in which time is nearly up: it asks once
    waits.sleep = lambda seconds: waits.slept.append(DEADLINE_S)  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        blobs.get(KEY, 0, 1)


def test_a_put_whose_answer_was_lost_is_recognised(proxy: Proxy, blobs: ObjectBlobs) -> None:
    proxy.spoil = first(1, Spoil(forward=True), "PUT")
    blobs.put(KEY, [b"ours", b" alone"])
    puts = [request for request in proxy.requests if request.method == "PUT"]
    assert len(puts) == 2  # the second was turned away
    assert all(b"if-none-match: *" in put.headers for put in puts)
    assert blobs.get(KEY).to_pybytes() == b"ours alone"


@pytest.mark.parametrize("theirs", [b"them", b"others"])
def test_a_lost_request_is_not_taken_for_another_ones_blob(proxy: Proxy, blobs: ObjectBlobs, theirs: bytes) -> None:
    blobs.put(KEY, [theirs])
    proxy.spoil = lambda exchange: Spoil() if (exchange.method, exchange.seen) == ("PUT", 1) else None
    with pytest.raises(AlreadyExists):
        blobs.put(KEY, [b"ours"])
    assert blobs.get(KEY).to_pybytes() == theirs


def test_a_key_that_was_taken_before_is_taken_even_with_equal_bytes(blobs: ObjectBlobs) -> None:
    blobs.put(KEY, [b"same"])
    with pytest.raises(AlreadyExists):
        blobs.put(KEY, [b"same"])


def test_a_conflict_over_a_key_that_nobody_got_is_settled_by_asking_again(proxy: Proxy, blobs: ObjectBlobs) -> None:
    proxy.spoil = first(2, Spoil(409, code="ConditionalRequestConflict"), "PUT")
    blobs.put(KEY, [b"ours"])
    assert blobs.get(KEY).to_pybytes() == b"ours"


def test_an_answer_that_breaks_off_is_asked_for_again(proxy: Proxy, blobs: ObjectBlobs) -> None:
    block = random.Random(5).randbytes(20_000_000)
    blobs.put(KEY, [block])
    proxy.spoil = lambda exchange: Spoil(half=True) if exchange.method == "GET" and exchange.seen < 2 else None
    assert blobs.get(KEY).to_pybytes() == block
    parts = [request for request in proxy.requests if request.method == "GET"]
    assert len(parts) == 3 + 2  # three parts, two of which broke off
    assert blobs.get(KEY, 8_000_000, 9_000_000).to_pybytes() == block[8_000_000:17_000_000]


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"])
def test_wrong_credentials_are_reported_at_once_and_never_shown(
    proxy: Proxy, blobs: ObjectBlobs, waits: WaitingClock, code: str
) -> None:
    proxy.spoil = lambda exchange: Spoil(403, code=code)
    with pytest.raises(ReadOnlyStore, match="credentials of the environment do not allow it") as writing:
        blobs.put(KEY, [b"x"])
    with pytest.raises(ReadOnlyStore):
        blobs.delete(KEY)
    with pytest.raises(StoreUnavailable, match=code) as reading:
        blobs.get(KEY, 0, 1)
    with pytest.raises(StoreUnavailable, match="s3://anabranch-test/"):
        list(blobs.list())
    assert waits.slept == []
    assert not isinstance(reading.value, ReadOnlyStore)
    for error in (writing.value, reading.value):
        assert SECRET not in told(error)
        assert "Signature=" not in told(error)
        assert "endpoint" not in str(error)


def test_a_missing_bucket_is_no_missing_blob(waits: WaitingClock) -> None:
    blobs = opened(fresh_url(bucket="nobody-made-this"), waits)
    for call in (
        lambda: blobs.put(KEY, [b"x"]),
        lambda: blobs.get(KEY),
        lambda: blobs.get(KEY, 0, 1),
        lambda: blobs.size(KEY),
        lambda: list(blobs.list()),
    ):
        with pytest.raises(StoreUnavailable, match="bucket 'nobody-made-this' not found"):
            call()  # type: ignore[no-untyped-call]
    there = opened(fresh_url(), waits)
    with pytest.raises(BlobMissing):
        there.get(KEY)


def test_a_server_is_trusted_only_with_a_certificate_of_the_authority_that_the_url_names(
    tmp_path: Path, waits: WaitingClock
) -> None:
    of_server = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=CA:FALSE"
    for name, more in (
        ("right", "-subj /CN=right"),
        ("wrong", "-subj /CN=wrong"),
        ("server", f"-CA right.crt -CAkey right.key {of_server}"),
    ):
        command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 2 {more}"
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    with Proxy(tmp_path / "server.crt", tmp_path / "server.key") as proxy:

        def url(options: str) -> str:
            return fresh_url(port=proxy.port, scheme="https", options=options)

        blobs = opened(url(f"&ca={tmp_path}/right.crt"), waits)
        blobs.put(KEY, [b"x"])
        assert blobs.get(KEY).to_pybytes() == b"x"
        for options in ("", f"&ca={tmp_path}/wrong.crt", "&allow_http=true"):
            with pytest.raises(StoreUnavailable, match="certificate is not trusted"):
                opened(url(options), waits).put(KEY, [b"x"])
    assert waits.slept == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://", "needs a bucket"),
        ("s3://key:hunter2@bucket/p", "credentials come from the environment"),
        ("s3://bucket/p?secret_access_key=hunter2", "'secret_access_key' is not an option of"),
        ("gs://bucket/p?region=x", "'region' is not an option of"),
        ("s3://bucket/p?endpoint=http://hunter2.example", "allow_http=true"),
        ("s3://bucket/p?endpoint=ftp://hunter2", "https://host:port"),
        ("s3://bucket/p?allow_http=perhaps", "to be true or false"),
        ("s3://bucket/p?ca=/no/such/file", "can't be read"),
    ],
)
def test_a_url_that_can_not_be_meant_is_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as refused:
        ab.connect("memory://", blobs=url)
    assert "hunter2" not in told(refused.value).replace(url, "")


def test_urls_name_the_places_of_three_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "aHVudGVyMg==")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    waits = WaitingClock()
    assert opened("s3a://b/p/q/?region=eu-west-1", waits).path("k") == "s3://b/p/q/k"
    assert opened("gs://b", waits).path("k") == "gs://b/k"
    azure = "abfss://c@acc.dfs.core.windows.net/p/k"
    assert opened("az://c/p?account=acc", waits).path("k") == azure
    assert opened("abfss://c@acc.dfs.core.windows.net/p", waits).path("k") == azure


@pytest.mark.parametrize(
    ("scheme", "options", "condition"),
    [
        ("az", "&account=acc", b"if-none-match: *"),
        ("gs", "", b"x-goog-if-generation-match: 0"),
    ],
)
def test_other_clouds_are_asked_never_to_overwrite_and_their_secrets_stay_secret(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    proxy: Proxy,
    waits: WaitingClock,
    scheme: str,
    options: str,
    condition: bytes,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2024&sig=hunter2")
    account = {"disable_oauth": True, "gcs_base_url": "", "client_email": "", "private_key": "", "private_key_id": ""}
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    proxy.spoil = lambda exchange: Spoil(503) if exchange.seen < 2 else Spoil(403, code="AuthenticationFailed")
    url = f"{scheme}://place/p?endpoint=http://127.0.0.1:{proxy.port}&allow_http=true{options}"
    with pytest.raises(ReadOnlyStore, match="it answered 403") as refused:
        opened(url, waits).put(KEY, [b"x"])
    assert [request.method for request in proxy.requests] == ["PUT"] * 3
    assert all(condition in request.headers for request in proxy.requests)
    assert all(f"place/p/{KEY}" in unquote(request.path) for request in proxy.requests)
    assert ("hunter2" in proxy.requests[0].path) is (scheme == "az")  # it was used, and is told to nobody
    assert "hunter2" not in told(refused.value)


def test_a_store_behind_a_bad_line_loses_and_doubles_nothing(proxy: Proxy, waits: WaitingClock) -> None:
    chance = random.Random(11)
    spoils = list(PASSING.values())
    proxy.spoil = lambda exchange: chance.choice(spoils) if chance.random() < 0.3 else None
    settings = Settings(inline_bytes_max=0, blob_deadline_s=1e9)
    runtime = Runtime(clock=waits, tasks=waits, settings=settings)
    with ab.connect("memory://", blobs=fresh_url(port=proxy.port), runtime=runtime) as store:
        store.scopes.create("s")
        store.streams.create("s/t", scaling=2)
        with store.writer("s/t") as writer:
            for number in range(100):
                writer.write(str(number).encode(), key=f"k{number % 5}").result(120)
        assert store.compact(force=True).files
        with store.reader("s/t") as reader:
            found = [(event.key, int(event.body)) for event in reader]
        assert sorted(number for _, number in found) == list(range(100))
        for key in {key for key, _ in found}:
            own = [number for each, number in found if each == key]
            assert own == sorted(own)
        assert list(store.check()) == []


def test_a_commit_that_fails_among_many_in_flight_takes_no_other_with_it(proxy: Proxy, waits: WaitingClock) -> None:
    refused = threading.Event()

    def refuse_one(exchange: Exchange) -> Spoil | None:
        if exchange.method != "PUT" or refused.is_set() or len(proxy.requests) < 4:
            return None
        refused.set()
        return Spoil(403, code="AccessDenied")

    proxy.spoil = refuse_one
    settings = Settings(inline_bytes_max=0, commit_bytes_max=30_000, pipeline_bytes_min=1)  # a commit for each batch
    with ab.connect(
        "memory://", blobs=fresh_url(port=proxy.port), runtime=Runtime(clock=waits, tasks=waits, settings=settings)
    ) as store:
        store.scopes.create("s")
        store.streams.create("s/t", schema=pa.schema([("n", pa.int64())]))
        landed: list[int] = []
        failed: list[int] = []
        writer = store.writer("s/t")
        acks = [writer.write_batch(pa.table({"n": [number] * 3_000})) for number in range(60)]
        for number, ack in enumerate(acks):
            try:
                ack.result(120)
                landed.append(number)
            except ReadOnlyStore:
                failed.append(number)
        writer.close()  # raises nothing: each refusal was raised by its acknowledgement
        with store.reader("s/t") as reader:
            rows = [n for batch in reader.batches() for n in batch.column("n").to_pylist()]
    assert failed
    assert len(failed) < 10
    assert rows == [n for n in landed for _ in range(3_000)]
