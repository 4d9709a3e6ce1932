"""The tutorial, the pages on tracing and on Spark code, and the README's Spark snippets do what they say: every command is
run, and prints what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import Command, File, follow, matches, steps

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.spark
@pytest.mark.process
def test_the_tutorial_can_be_followed_from_nothing(tmp_path: Path) -> None:
    assert follow(DOCS / "tutorial" / "index.md", tmp_path) >= 12


@pytest.mark.process
def test_the_page_on_tracing_shows_what_its_program_prints(tmp_path: Path) -> None:
    assert follow(DOCS / "how-to" / "tracing.md", tmp_path) == 1


@pytest.mark.spark
@pytest.mark.process
def test_the_page_on_spark_code_shows_what_its_program_writes(tmp_path: Path) -> None:
    page = DOCS / "how-to" / "spark-code.md"
    assert ".writeStream" in page.read_text()
    assert follow(page, tmp_path) == 2


@pytest.mark.spark
@pytest.mark.process
def test_the_spark_snippets_of_the_readme_run_as_they_stand(tmp_path: Path) -> None:
    """Where a snippet leaves a name out (`…`), the test fills one in; a snippet without an end is loaded or started."""
    snippets = re.findall(
        r"`([^`\n]*\b(?:read|write)Stream\b[^`\n]*\([^`\n]*)`", (DOCS.parent / "README.md").read_text()
    )
    assert snippets
    lines = [
        "import anabranch as ab, pyarrow as pa",
        "from anabranch.spark import session",
        "with ab.connect('./river', create=True) as store:",
        "    store.scopes.create('iot')",
        "    store.streams.create('iot/sensors', schema=pa.schema([('n', pa.int64())]))",
        "    store.writer('iot/sensors').write({'n': 7}).result()",
        "spark = session()",
        "df = spark.readStream.format('anabranch').option('stream', 'iot/sensors').load('./river')",
    ]
    for number, snippet in enumerate(snippets):
        if "writeStream" in snippet:
            made = snippet.replace("…", f"'iot/out{number}'")
            end = "" if "start(" in made else ".option('create', 'true').start()"
            lines += [f"query = {made}{end}", "query.processAllAvailable()", "query.stop()"]
        else:
            made = snippet.replace("…", "'iot/sensors'")
            lines.append(f"assert {made}{'' if 'load(' in made else '.load()'}.isStreaming")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_files_and_commands_of_a_page_are_found_in_order() -> None:
    page = (
        '```python title="a.py"\nprint(1)\n```\ntext\n```console\n$ python a.py\n1\n$ true\n```\n```sh\nnot run\n```\n'
    )
    assert list(steps(page)) == [File("a.py", "print(1)\n"), Command("python a.py", "1\n"), Command("true", "")]


def test_another_output_than_the_shown_one_is_noticed(tmp_path: Path) -> None:
    assert matches("600 events written, in 0.2 s", "…600 events…")
    assert not matches("599 events written", "…600 events…")
    page = tmp_path / "page.md"
    for wrong in ("```console\n$ echo 1\n2\n```\n", "```console\n$ false\n```\n"):
        page.write_text(wrong)
        with pytest.raises(AssertionError):
            follow(page, tmp_path)
