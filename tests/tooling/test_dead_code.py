"""What `./dev check` finds unused, and that its list of exceptions has no stale names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("used_from_outside.py")


def test_every_listed_name_still_exists() -> None:
    listed = re.findall(r"^(?:_\.)?(\w+)(?:  #.*)?$", LISTED.read_text(), re.MULTILINE)
    assert len(listed) > 40
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    known = set(re.findall(r"\w+", source))
    assert [name for name in listed if name not in known] == []


def test_an_unused_name_is_found_and_a_listed_one_is_not(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def nobody_calls_this() -> None: ...\n\ndef trace() -> None: ...\n")
    command = [sys.executable, "-m", "vulture", "--min-confidence", "60", str(module), str(LISTED)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "unused function 'nobody_calls_this'" in found.stdout
    assert "trace" not in found.stdout
