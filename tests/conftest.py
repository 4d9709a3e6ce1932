"""What all tests share: which of them a plain run leaves out, and last lines that say what ran on which backend and how many
tests were left out, so that nothing is left out unseen."""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import signal
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

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

# How fast a machine makes examples is no property of the store. A plain run takes the same examples each time, so that it
# fails for what was changed and never by chance; a run of all tests looks for new ones, and for more of them.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", _UNTIMED, derandomize=True, max_examples=30)
settings.register_profile("random", _UNTIMED, derandomize=False)  # on a CI host the default is fixed

_BACKENDS = (
    *("sqlite+folder+s3", "sqlite+s3+folder", "postgres+s3", "sqlite+s3"),
    *("postgres+folder", "postgres+memory", "sqlite+folder", "postgres", "sqlite", "memory"),
    *("folderands3", "s3", "folder"),
)


# Where several processes run the tests, they begin with these, so that none is left alone with one of them in the end.
_LONG = (
    *("process/test_torture.py", "spark/test_demo.py", "spark/test_pipeline_process.py", "spark/test_s3.py"),
    *("spark/test_pipeline_runs.py", "spark/test_source.py", "spark/test_sink.py", "spark/test_java.py"),
    *("cli/test_postgres.py", "simulation/crashes/test_crash_everywhere.py"),
    *("process/test_kill.py", "docs/test_tutorial.py"),
)


_SLOW_LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `./dev test` passes on."""
    parser.addoption(
        "--all", action="store_true", help="run the tests marked `slow` too, with random examples and seeds"
    )
    parser.addoption("--seed", type=int, help="the seed of every random test, as the report of a failed one names it")


def pytest_configure(config: pytest.Config) -> None:
    """Runs before any test is imported, and so before it takes its settings from the profile."""
    config.stash[_SLOW_LEFT_OUT] = 0
    # A shell ignores Ctrl-C for what it starts in the background, and tests press it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("random" if config.getoption("--all") else "fixed")


@pytest.hookimpl(trylast=True)  # so that what -k and -m leave out is not counted
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests, but for those that are asked for: by `--all`, by `-m slow` or by name (`file.py::test`).

    In one of several processes, the long files come first. The others keep their order.
    """
    if not config.getoption("--all") and "slow" not in config.getoption("markexpr"):
        named = tuple(argument for argument in config.args if "::" in argument)
        slow = [
            item for item in items if item.get_closest_marker("slow") and not item.nodeid.startswith(named or ("::",))
        ]
        config.stash[_SLOW_LEFT_OUT] = len(slow)
        config.hook.pytest_deselected(items=slow)
        left_out = set(slow)
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        order = {f"tests/{file}": place for place, file in enumerate(_LONG)}
        items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


def pytest_collection(session: pytest.Session) -> None:
    """What collecting makes lives as long as the process, so looking for garbage meanwhile is in vain."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on the collector leaves alone what there is of tests and modules, a million objects: each full collection
    would traverse them, and tests make many."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # datasketches reports what is still there in the end


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A plain run of all tests shares Spark sessions; in one of the slow tests too, the files of a session take too long."""
    if config.getoption("dist") != "loadfile" or config.getoption("--all"):
        return None
    from tests.processes import SharedSessions

    return SharedSessions(config, log)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of a random test: in a plain run always the same, with --all drawn anew. The report of a failure names it."""
    chosen: int | None = request.config.getoption("--seed")
    if chosen is None and request.config.getoption("--all"):
        chosen = random.SystemRandom().randrange(1 << 32)
    elif chosen is None:
        chosen = zlib.crc32(request.node.name.encode())
    request.node.add_report_section("setup", "seed", f"repeat it with --seed {chosen}")
    return chosen


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes says to the first how many tests it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow_left_out"] = session.config.stash[_SLOW_LEFT_OUT]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Delete the folder in memory that `./dev test` has made for all files of this run. Its name ends with the number of the
    process that runs them: not of a worker, nor of a pytest that a test starts, which have the same environment."""
    folder = os.environ.get("ANABRANCH_TEST_FILES", "")
    if folder.endswith(f"-{os.getpid()}"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each of several processes has collected all tests, so each has left out the same."""
    node.config.stash[_SLOW_LEFT_OUT] = getattr(node, "workeroutput", {}).get("slow_left_out", 0)


def _backend(node: str) -> str | None:
    """The backend that a test of the contracts or pairings names in its id."""
    if not node.startswith(("tests/contracts/", "tests/store/")):
        return None
    named = next((each for each in _BACKENDS if each in node.lower()), None)
    if named is None and node.startswith("tests/store/"):
        return f"{os.environ.get('ANABRANCH_TEST_CATALOG', 'sqlite')}+folder"
    return named


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Count what passed, per backend, and what was left out."""
    passed = Counter(_backend(report.nodeid) for report in terminalreporter.stats.get("passed", ()))
    counted = {name: number for name, number in passed.items() if name is not None}
    if counted:
        listed = ", ".join(f"{name} {number}" for name, number in sorted(counted.items()))
        terminalreporter.write_line(f"backends that tests passed on: {listed}")
    if left_out := config.stash[_SLOW_LEFT_OUT]:
        terminalreporter.write_line(f"slow tests left to ./dev test --all: {left_out}")
