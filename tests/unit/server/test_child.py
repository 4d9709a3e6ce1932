"""A further process of a broker ends whatever fails in it, so that its supervisor replaces it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Serves nothing: it fails while a thread goes on, as those of gRPC and of open calls may.
CHILD = """
import sys, threading
from anabranch.server.processes import child

def serve(*_):
    threading.Thread(target=threading.Event().wait).start()
    if "{answered}":
        child._answer(address="127.0.0.1:1")
    raise {error}

child._serve = serve
child.main()
"""


@pytest.mark.parametrize("answered", ["", "yes"])
@pytest.mark.parametrize("error", ["RuntimeError('no such thing')", "KeyboardInterrupt", "SystemExit(0)"])
def test_a_process_with_an_unexpected_error_ends(error: str, answered: str) -> None:
    order = json.dumps({"settings": {"store": "memory://"}})
    ended = subprocess.run(
        [sys.executable, "-c", CHILD.format(error=error, answered=answered)],
        input=order + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert error.partition("(")[0] in ended.stderr
    assert bool(ended.stdout) == bool(answered)


def test_a_process_whose_main_process_is_gone_ends() -> None:
    """Its error can't be told to anyone."""
    order = json.dumps({"settings": {"store": "memory://"}})
    script = CHILD.format(error="child.AnabranchError('refused')", answered="")
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.close()
        process.stdin.write(order + "\n")
        process.stdin.flush()
        assert process.wait(60) == 1
