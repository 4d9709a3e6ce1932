"""The pages on brokers do what they say, on ports of their own."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.documents import follow
from tests.maven import maven_repository
from tests.ports import free_port

DOCS = Path(__file__).parents[2] / "docs"


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips a page whose programs are not there."""
    missing = [each for each in programs if shutil.which(each) is None]
    return pytest.mark.skipif(bool(missing), reason=f"the page runs {', '.join(missing)}: not found")


@pytest.mark.process
@pytest.mark.parametrize(
    ("page", "commands"),
    [
        ("how-to/curl.md", 24),
        ("how-to/durable-streams.md", 15),
        ("how-to/flight-sql.md", 5),
        ("how-to/influxql.md", 9),
        ("how-to/promql.md", 9),
        pytest.param("how-to/grpc.md", 11, marks=[pytest.mark.slow, needs("go", "npm")]),
        pytest.param("how-to/grpc-java.md", 6, marks=[pytest.mark.slow, needs("mvn")]),
        ("how-to/limit-rates.md", 12),
        ("how-to/run-a-broker.md", 1),
        ("tutorial/two-machines.md", 9),
    ],
)
def test_a_page_on_brokers_can_be_followed(
    page: str, commands: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAVEN_OPTS", f"-Dmaven.repo.local={maven_repository()}")
    flight, http, grpc = (str(free_port()) for _ in range(3))
    text = (
        (DOCS / page)
        .read_text()
        .replace(":7410", f":{flight}")
        .replace(":7411", f":{http}")
        .replace(":7412", f":{grpc}")
    )
    ports = f"--flight-port {flight} --grpc-port {grpc} --set http_port={http}"
    text = text.replace("$ anabranch serve ", f"$ anabranch serve {ports} ")
    own = tmp_path / "page.md"
    own.write_text(text)
    try:
        assert follow(own, tmp_path) >= commands
    finally:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((tmp_path / "broker.pid").read_text()), signal.SIGKILL)
