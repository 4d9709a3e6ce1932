"""What pages show of Spark code does what they say, in the session of the other tests: starting Spark is not what they show."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import anabranch as ab
from tests.docs.documents import Command, File, matches, steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
Run = Callable[[str], None]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Runs a program whose `./` is the test's folder: Spark's processes were started in another one."""

    def run(text: str) -> None:
        program = tmp_path / "program.py"
        program.write_text(text.replace("./", f"{tmp_path}/"))
        runpy.run_path(str(program), {"spark": spark})

    return run


@pytest.mark.slow
def test_the_page_on_spark_code_shows_what_its_program_writes(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "how-to" / "spark-code.md").read_text()
    assert ".writeStream" in page
    files: dict[str, str] = {}
    commands = 0
    for step in steps(page):
        if isinstance(step, File):
            files[step.name] = step.text
        else:
            assert isinstance(step, Command)
            python, name, *_ = step.line.split()
            assert python == "python"
            run(files[name])
            assert matches(capsys.readouterr().out, step.shown)
            commands += 1
    assert commands == 2


def test_the_spark_snippets_of_the_readme_run_as_they_stand(run: Run, tmp_path: Path) -> None:
    """Where a snippet leaves a name out (`…`), the test fills one in; a snippet without an end is loaded or started."""
    snippets = re.findall(r"`([^`\n]*\b(?:read|write)Stream\b[^`\n]*\([^`\n]*)`", (ROOT / "README.md").read_text())
    assert snippets
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/sensors", schema=pa.schema([("n", pa.int64())]))
        with store.writer("iot/sensors") as writer:
            writer.write({"n": 7})
    lines = ["df = spark.readStream.format('anabranch').option('stream', 'iot/sensors').load('./river')"]
    for number, snippet in enumerate(snippets):
        if "writeStream" in snippet:
            made = snippet.replace("…", f"'iot/out{number}'")
            end = "" if "start(" in made else ".option('create', 'true').start()"
            lines += [f"query = {made}{end}", "query.processAllAvailable()", "query.stop()"]
        else:
            made = snippet.replace("…", "'iot/sensors'")
            lines.append(f"assert {made}{'' if 'load(' in made else '.load()'}.isStreaming")
    run("\n".join(lines))
