"""Runs the files of failed tests of `.ci/run` a second time, alone, if they use processes, servers or Spark sessions and so
depend on the load of the machine. Whole files, since tests may go on where the one before them ended. A test that passes
then is reported as unreliable: a defect of the test or of the store, to be found and fixed. Tests that depend only on the
code, such as unit tests and the simulation, are not run again, nor are more than three files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SHARES_THE_MACHINE = ("process", "spark", "cli", "contracts", "store", "server", "remote", "tooling", "docs")
AT_MOST = 3


def files_of(failed: list[str]) -> list[str]:
    """The files of these tests, each once."""
    return sorted({test.partition("::")[0] for test in failed})


def why_not(failed: list[str]) -> str | None:
    """Why the files of these tests are not run a second time; None if they are."""
    if not failed:
        return "no failed test is on record"
    if len(files_of(failed)) > AT_MOST:
        return f"tests of {len(files_of(failed))} files failed; at most {AT_MOST} are run again"
    for test in failed:
        if "::" not in test or not test.startswith(tuple(f"tests/{folder}/" for folder in SHARES_THE_MACHINE)):
            return f"{test} does not depend on the load of the machine"
    return None


def main() -> int:
    """The exit code of the second run, or 1 if there is none. The arguments are the first run's: none, or --all."""
    record = Path(".pytest_cache/v/cache/lastfailed")
    failed = sorted(json.loads(record.read_text())) if record.exists() else []
    refusal = why_not(failed)
    if refusal is not None:
        print(f"no second run: {refusal}", flush=True)
        return 1
    files = files_of(failed)
    print(f"failed: {', '.join(failed)}\nsecond run, alone: {', '.join(files)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:], *files], check=False).returncode
    if code == 0:
        print(f"UNRELIABLE: failed among the others, passed alone: {', '.join(failed)}", flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
