"""The page on which a person uploads a file, in the DOM of jsdom: real requests to a real broker."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.npm import npm_folder
from tests.server.kit import BrokerProcess
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.process
DATA = random.Random(7).randbytes(20 << 20)
STREAM = "iot/firmware"
# Opens the page and chooses the file; prints what the page says. With `reload` it closes the page in the middle, opens it
# anew with what the browser remembers, and chooses the file again once a line comes.
SCRIPT = """
const { JSDOM } = require("jsdom"), fs = require("fs");
const [file, url, stream, mode] = process.argv.slice(1);
async function open(kept) {
  const { window } = await JSDOM.fromURL(url, { runScripts: "outside-only", pretendToBeVisual: true });
  for (const [name, value] of Object.entries(kept)) window.localStorage.setItem(name, value);
  window.eval(window.document.querySelector("script").textContent);
  return window;
}
function choose(window) {
  const get = (id) => window.document.getElementById(id);
  const chosen = new window.File([fs.readFileSync(file)], "a.bin", { type: "text/x-a", lastModified: 5 });
  Object.defineProperty(get("file"), "files", { value: [chosen], configurable: true });
  get("file").dispatchEvent(new window.Event("change"));
}
const said = (window) => window.document.getElementById("said").textContent;
async function until(window, holds) {
  let last = "";
  for (;;) {
    const now = said(window);
    if (now !== last) console.log((last = now));
    if (holds(now)) return;
    await new Promise((done) => setTimeout(done, 20));
  }
}
// Stops the page as its second part is to be sent; what the browser remembers.
function closedInTheMiddle(window) {
  return new Promise((done) => {
    const { prototype } = window.XMLHttpRequest, open = prototype.open;
    let parts = 0;
    prototype.open = function (method, url) {
      if (method === "PATCH" && ++parts === 2) {
        done({ ...window.localStorage });
        prototype.send = () => {};  // from here on the page does nothing, as one that is closed
      }
      open.call(this, method, url);
    };
  });
}
(async () => {
  let window = await open({});
  window.document.getElementById("name").value = stream;
  choose(window);
  if (mode === "reload") {
    const kept = await closedInTheMiddle(window);
    window = await open(kept);
    console.log(window.document.getElementById("name").value + ": " + said(window));
    await new Promise((done) => process.stdin.once("data", done));
    choose(window);
  }
  await until(window, (now) => now.includes("is stored") || now.endsWith("."));
  console.log(window.document.getElementById("link").href);
  process.exit(0);
})();
"""


class Page:
    """A browser with the page, in a process of its own."""

    def __init__(self, folder: Path, url: str, mode: str) -> None:
        modules = npm_folder("jsdom-26.1.0", "jsdom@26.1.0")
        (folder / "a.bin").write_bytes(DATA)
        self.process = subprocess.Popen(
            ["node", "-e", SCRIPT, "--", str(folder / "a.bin"), f"{url}/upload", STREAM, mode],
            cwd=modules,
            env=dict(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self, pattern: str) -> str:
        """Read what the page says up to a line of this pattern."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if re.search(pattern, line):
                return line.strip()
        raise AssertionError("".join(lines))

    def choose(self) -> None:
        """Choose the file again, after the reload."""
        assert self.process.stdin is not None
        self.process.stdin.write("choose\n")
        self.process.stdin.close()

    def link(self) -> str:
        """Where the file can be downloaded, at the end."""
        self.says("is stored")
        found = self.says("^http")
        assert self.process.wait(PATIENCE_S) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        return found


def broker(river: Path, *options: str) -> BrokerProcess:
    others = ["--set", "flight=false", "--set", "grpc=false"]
    return BrokerProcess(river, *others, *options, folder=river.parent)


@pytest.mark.slow
def test_a_file_is_uploaded_across_a_reload_and_a_lost_connection(tmp_path: Path) -> None:
    with broker(tmp_path / "river") as served:
        httpx.post(f"{served.http}/v1/scopes", json={"name": "iot"}).raise_for_status()
        page = Page(tmp_path, served.http, "reload")
        page.says(f"{STREAM}: a.bin is not finished: choose it again")
        assert httpx.head(f"{served.http}/v1/streams/{STREAM}/bytes").headers["upload-offset"] == str(8 << 20)
        served.kill()
        page.choose()
        page.says("Trying again")
    with broker(tmp_path / "river", "--http-port", str(urlsplit(served.http).port)):
        answer = httpx.get(page.link())
    assert answer.content == DATA
    assert answer.headers["content-disposition"] == 'attachment; filename="a.bin"'
    assert answer.headers["content-type"] == "text/x-a"


def test_the_page_says_what_is_wrong_and_runs_only_its_own_script(tmp_path: Path) -> None:
    with broker(tmp_path / "river") as served:
        page = Page(tmp_path, served.http, "")
        page.says("scope 'iot'")
        answer = httpx.get(f"{served.http}/upload")
    assert page.process.wait(PATIENCE_S) == 0
    policy = answer.headers["content-security-policy"]
    for tag in ("script", "style"):
        found = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        (digest,) = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in found]
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
