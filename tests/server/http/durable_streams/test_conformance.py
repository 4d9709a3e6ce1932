"""The public conformance suite of the Durable Streams protocol against a broker. It is fetched by npm once, into the cache
folder of the user; without node and npm the test is skipped."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.store import Store
from tests.npm import npm_folder
from tests.server.http.serving import serving

SUITE = "@durable-streams/server-conformance-tests@0.3.6"
VITEST = "vitest@4.1.12"
# The protocol's own reference server (0.3.7) fails six cases: three of sliding TTL, the CORS preflight, and two of
# server-sent events that pair each data event with a control event.


# All but these run always: they take two thirds of the time.
LONG = r"^(?!.*(Property-Based|TTL))"


@pytest.mark.parametrize(
    ("pattern", "least"), [(LONG, 200), pytest.param("", 300, marks=pytest.mark.slow)], ids=["short", "whole"]
)
def test_the_public_conformance_suite_passes(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pattern: str, least: int
) -> None:
    folder = npm_folder("durable-streams-0.3.6", SUITE, VITEST)
    monkeypatch.setattr(limits, "DURABLE_POLL_S", 0.5)
    store.scopes.create("v1")
    (folder / "suite.test.ts").write_text(
        'import { runConformanceTests } from "@durable-streams/server-conformance-tests"\n'
        "runConformanceTests({ baseUrl: process.env.STREAMS_URL, longPollTimeoutMs: 500 })\n"
    )
    report = tmp_path / "report.json"
    with serving(store, origins=["*"]) as running:
        subprocess.run(
            ["npx", "vitest", "run", "suite.test.ts", "--reporter=json", f"--outputFile={report}", "-t", pattern],
            cwd=folder,
            env={**os.environ, "STREAMS_URL": f"{running.url}/streams"},
            capture_output=True,
            timeout=180,
        )
    cases = [case for file in json.loads(report.read_text())["testResults"] for case in file["assertionResults"]]
    failed = [case["fullName"] for case in cases if case["status"] == "failed"]
    assert sum(case["status"] != "skipped" for case in cases) > least
    assert failed == []
