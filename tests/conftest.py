"""What all tests share: a last line that says what ran on which backend, so that nothing is left out unseen."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Many containers say that Python is to keep no bytecode. Then each of the hundreds of processes that tests start would
# compile all of the store anew, which is half of what importing it costs. So it is kept, but outside of the source's folders.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# Java does little here before it ends, so its second compiler and its parallel collector cost more than they give: a third
# of the processor time of a short session.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# How fast a machine makes examples is no property of the store.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

_BACKENDS = (
    *("sqlite+folder+s3", "sqlite+s3+folder", "postgres+s3", "sqlite+s3"),
    *("postgres+folder", "postgres+memory", "sqlite+folder", "postgres", "sqlite", "memory"),
    *("folderands3", "s3", "folder"),
)


# Where several processes run the tests, they begin with these, so that none is left alone with one of them in the end.
_LONG = (
    *("process/test_torture.py", "spark/test_demo.py", "spark/test_pipeline_process.py", "spark/test_s3.py"),
    *("spark/test_pipeline_runs.py", "spark/test_source.py", "spark/test_sink.py", "cli/test_pipeline.py"),
    *("cli/test_postgres.py", "sim/test_crash_everywhere.py", "process/test_kill.py", "spark/test_java.py"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long files first, in one of several processes. The others keep their order."""
    if hasattr(config, "workerinput"):
        order = {f"tests/{file}": place for place, file in enumerate(_LONG)}
        items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


def _backend(node: str) -> str | None:
    """The backend that a test of the contracts or pairings names in its id."""
    if not node.startswith(("tests/contracts/", "tests/store/")):
        return None
    named = next((each for each in _BACKENDS if each in node.lower()), None)
    if named is None and node.startswith("tests/store/"):
        return f"{os.environ.get('ANABRANCH_TEST_CATALOG', 'sqlite')}+folder"
    return named


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count what passed, per backend."""
    passed = Counter(_backend(report.nodeid) for report in terminalreporter.stats.get("passed", ()))
    counted = {name: number for name, number in passed.items() if name is not None}
    if counted:
        told = ", ".join(f"{name} {number}" for name, number in sorted(counted.items()))
        terminalreporter.write_line(f"backends that tests passed on: {told}")
