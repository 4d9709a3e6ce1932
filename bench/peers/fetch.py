"""`./dev bench peers`: fetches Kafka, so that it is measured beside the store: the broker's jars from Maven Central, the
client from the Python package index. Redis and NATS are installed by the system's package manager."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KAFKA_JARS = ROOT / "bench" / "out" / "kafka"
_POM = Path(__file__).with_name("kafka.pom.xml")
_SYSTEM = {"redis": "redis-server", "nats": "nats-server"}


def fetch() -> int:
    """Fetch what is missing, and report what each peer is measured with. Returns the exit code."""
    failures = [problem for problem in (_fetch_jars(), _install_client()) if problem is not None]
    for problem in failures:
        print(f"kafka: {problem}", file=sys.stderr)
    if not failures:
        print(f"kafka: {jar_version(KAFKA_JARS)}, in {KAFKA_JARS.relative_to(ROOT)}")
    for peer, program in _SYSTEM.items():
        found = shutil.which(program)
        print(f"{peer}: {found or f'not installed; install {program} (Debian: apt install {program})'}")
    return 1 if failures else 0


def jar_version(jars: Path) -> str | None:
    """The version of the broker whose jars lie in a folder; None if there are none."""
    broker = next(jars.glob("kafka_*.jar"), None)
    return None if broker is None else f"Kafka {broker.stem.rpartition('-')[2]}"


def _fetch_jars() -> str | None:
    """Fetch the jars unless they are there. Returns what went wrong."""
    if jar_version(KAFKA_JARS) is not None:
        return None
    maven = shutil.which("mvn")
    if maven is None:
        return "its jars are fetched by Maven; install it (Debian: apt install maven)"
    partial = KAFKA_JARS.with_suffix(".partial")  # moved when complete: an interrupted run leaves no half set of jars
    shutil.rmtree(partial, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    print("fetching Kafka's jars, about 45 MB …", flush=True)
    done = subprocess.run([maven, "-q", "-B", "-f", str(_POM), *goal], check=False)
    if done.returncode:
        return f"Maven ended with {done.returncode}"
    partial.rename(KAFKA_JARS)
    return None


def _install_client() -> str | None:
    """Install the Python client into this environment. Returns what went wrong."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*command, "confluent-kafka"], check=False)
    return f"pip ended with {done.returncode}" if done.returncode else None
