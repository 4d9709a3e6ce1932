"""A real browser: Chromium, headless, from npm's registry, driven by a script in node."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.npm import npm_folder
from tests.waiting import PATIENCE_S

PACKAGES: Final = ("@sparticuz/chromium@153.0.0", "puppeteer-core@25.16.0")
_OPEN: Final = """
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";
import readline from "node:readline";
const given = JSON.parse(process.argv[1]);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (value) => console.log(JSON.stringify(value));
const told = async () => JSON.parse((await lines.next()).value);
const args = [...chromium.args, "--host-resolver-rules=MAP *.example 127.0.0.1"].filter((each) => each !== "--disable-web-security");
const browser = await puppeteer.launch({ args, executablePath: await chromium.executablePath(), headless: "shell" });
const page = await browser.newPage();
try {
"""
_CLOSE: Final = """
} finally {
  await browser.close();
}
process.exit(0);
"""


class Script:
    """A script in a browser, which says and is told JSON values, a line each."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def said(self) -> Any:
        """The next value that the script says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(self._process.stderr.read())
        return json.loads(line)

    def tell(self, value: Any) -> None:
        """What the script gets from `told()`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()


@contextmanager
def in_browser(script: str, **given: Any) -> Iterator[Script]:
    """Runs `script`, which has `browser`, `page`, `given`, `say` and `told`. Skips the test without node and npm, and where
    the browser lacks a library of the system."""
    folder = npm_folder("chromium-153.0.0", *PACKAGES)
    process = subprocess.Popen(
        ["node", "--input-type=module", "-e", _OPEN + script + _CLOSE, "--", json.dumps(given)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(folder)},
        start_new_session=True,
    )
    try:
        yield Script(process)
        process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait(PATIENCE_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()
