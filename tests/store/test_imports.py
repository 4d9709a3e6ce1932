"""What a process imports that only writes and reads events, and what a broker does. The first use of pandas takes longer
than all of the rest, and a full garbage collection of pandas' objects stops a following reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_WRITES_AND_READS = """
import sys
import anabranch as ab

with ab.connect(sys.argv[1], create=True) as store:
    store.scopes.create("lab")
    store.streams.create("lab/readings")
    with store.writer("lab/readings") as writer:
        writer.write(b"23.5", key="dice")
    with store.reader("lab/readings") as reader:
        event = next(iter(reader))
        print(event.key, event.time_us is not None, event.appended_us > 0)
print(*sorted(each for each in ("pandas", "pyspark", "duckdb", "sqlglot", "wasmtime") if each in sys.modules))
"""


def test_writing_and_reading_events_imports_no_large_library(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITES_AND_READS, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "dice True True\n\n"


_SERVES = """
import sys
import anabranch.cli.serve
import anabranch.server.run
print(*sorted(each for each in ("pandas", "pyspark", "pyarrow.dataset", "sqlglot", "wasmtime") if each in sys.modules))
"""


def test_a_broker_imports_no_query_engine_which_its_query_processes_load_for_themselves() -> None:
    done = subprocess.run([sys.executable, "-c", _SERVES], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "\n"


_QUERIES = """
import sys
import anabranch.query.worker
import anabranch as ab
from anabranch.query import Query

with ab.connect(sys.argv[1], create=True) as store:
    store.scopes.create("lab")
    store.streams.create("lab/readings")
    store.writer("lab/readings").write(b"23.5", key="dice").result()
    with Query(store) as query:
        print([batch.to_pylist() for batch in query.run("SELECT count(*) AS events FROM lab.readings")])
print("pandas" in sys.modules)
"""


def test_a_process_of_queries_imports_no_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _QUERIES, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "[[{'events': 1}]]\nFalse\n", done.stderr
