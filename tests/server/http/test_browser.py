"""Pages in a real browser that use a broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import anabranch as ab
from tests.ports import free_port
from tests.server.http.browser import in_browser
from tests.server.kit import NO_GRPC, BrokerProcess

pytestmark = pytest.mark.process
EVENTS = "/v1/streams/iot/events/events"

FOLLOW = """
await page.goto(given.page);
await page.exposeFunction("say", say);
await page.evaluate((url) => {
  const source = new EventSource(url);
  source.onmessage = (event) => say(JSON.parse(event.data).n);
}, given.broker + given.events + "?follow&from=head");
await told();
"""

FOREIGN = """
await page.goto(given.page);
say(await page.evaluate(async ({ broker, events }) => {
  const found = {};
  found.read = await fetch(broker + events).then((r) => r.text(), (error) => error.name);
  found.written = await fetch(broker + events, { method: "POST", mode: "no-cors", body: '{"n":666}' }).then((r) => r.type, (error) => error.name);
  found.deleted = await fetch(broker + "/v1/streams/iot/events", { method: "DELETE" }).then((r) => r.status, (error) => error.name);
  found.socket = await new Promise((done) => {
    const socket = new WebSocket(broker.replace("http", "ws") + events + "?follow&from=head");
    socket.onmessage = () => done("message");
    socket.onerror = () => done("error");
  });
  found.source = await new Promise((done) => {
    const source = new EventSource(broker + events + "?follow&from=head");
    source.onmessage = () => done("message");
    source.onerror = () => done("error");
  });
  return found;
}, given));
"""

REBOUND = """
const found = [];
for (const name of ["127.0.0.1", "localhost", "evil.example"]) {
  const answer = await page.goto(given.broker.replace("127.0.0.1", name) + given.events);
  found.push([name, answer.status(), await page.evaluate(() => document.body.innerText)]);
}
say(found);
await page.goto(given.broker.replace("127.0.0.1", "localhost") + "/docs");
await page.waitForSelector("details");
await page.type("#find", "events");
say(await page.evaluate(() => [...document.querySelectorAll("details")].map((each) => each.checkVisibility())));
"""

UPLOAD = """
page.on("console", (message) => process.stderr.write(message.text() + "\\n"));
await page.goto(given.broker + "/upload");
await page.type("#name", "iot/firmware");
const file = await page.$("#file");
await file.uploadFile(given.file);
await page.waitForFunction(() => document.getElementById("said").textContent.includes("is stored"));
const link = await page.evaluate(() => document.getElementById("link").href);
say(await page.evaluate(async (link) => {
  const part = await fetch(link, { headers: { Range: "bytes=-7" } });
  return [part.status, await part.text()];
}, link));
"""


@contextmanager
def page_server() -> Iterator[str]:
    """An empty page of an origin of its own."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>a page</title>")

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "river"
    with ab.connect(folder, create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/events", schema={"n": pa.int64()})
    return folder


def append(broker: BrokerProcess, numbers: range) -> None:
    for number in numbers:
        answer = httpx.post(broker.http + EVENTS, json={"n": number})
        assert answer.status_code == 200, answer.text


def test_a_page_follows_a_stream_past_the_death_of_a_broker(store: Path, tmp_path: Path) -> None:
    port = str(free_port())
    with page_server() as page:
        options = ("--http-port", port, "--set", f"cors_origins={page}", *NO_GRPC)
        with BrokerProcess(store, *options, folder=tmp_path) as broker:
            append(broker, range(10))
            with in_browser(FOLLOW, page=page, broker=broker.http, events=EVENTS) as script:
                seen = [script.said() for _ in range(10)]
                broker.kill()
                with BrokerProcess(store, *options, folder=tmp_path) as second:
                    append(second, range(10, 20))
                    seen += [script.said() for _ in range(10)]
                    script.tell("enough")
    assert seen == list(range(20))


def test_a_page_of_another_origin_learns_and_changes_nothing(store: Path, tmp_path: Path) -> None:
    with page_server() as page, BrokerProcess(store, *NO_GRPC, folder=tmp_path) as broker:
        append(broker, range(3))
        with in_browser(FOREIGN, page=page, broker=broker.http, events=EVENTS) as script:
            found = script.said()
        assert found == {
            "read": "TypeError",
            "written": "opaque",
            "deleted": "TypeError",
            "socket": "error",
            "source": "error",
        }
        rows = httpx.get(broker.http + EVENTS, headers={"Accept": "application/x-ndjson"}).text.splitlines()
        assert len(rows) == 3


def test_a_page_whose_name_leads_to_the_broker_is_no_page_of_it(store: Path, tmp_path: Path) -> None:
    with BrokerProcess(store, *NO_GRPC, folder=tmp_path) as broker:
        append(broker, range(1))
        with in_browser(REBOUND, broker=broker.http, events=EVENTS) as script:
            (address, local, foreign), operations = script.said(), script.said()
    assert address[1:] == local[1:] and address[1] == 200 and '"n":0' in address[2].replace(" ", "")
    assert foreign[1] == 421 and "allowed_hosts" in foreign[2]
    assert 0 < operations.count(True) < len(operations)  # those that were found


def test_a_file_is_uploaded_on_the_page_and_read_in_ranges(store: Path, tmp_path: Path) -> None:
    (tmp_path / "firmware.bin").write_bytes(b"x" * (9 << 20) + b"the end")
    with (
        BrokerProcess(store, *NO_GRPC, folder=tmp_path) as broker,
        in_browser(UPLOAD, broker=broker.http, file=str(tmp_path / "firmware.bin")) as script,
    ):
        assert script.said() == [206, "the end"]
    with ab.connect(store) as opened, opened.bytes("iot/firmware") as stored:
        assert stored.read() == (tmp_path / "firmware.bin").read_bytes()
