"""Writes docs/reference/spark-options.md from what `anabranch.spark.option_list` declares: `python docs/spark_options_page.py`.

A test holds the page to this.
"""

from __future__ import annotations

from pathlib import Path

from anabranch.spark.option_list import OPTIONS, SparkOption

PAGE = Path(__file__).parent / "reference" / "spark-options.md"
_HEAD = """# Spark options

The options of the format `anabranch`, for `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`. Names are the
same in any case. Unknown options are refused, and so are options for reading when writing, and the reverse. Options with a
dot are Spark's own settings and are not checked. [Process streams in your own Spark code](../how-to/spark-code.md) shows how
to use them.

| Option | For | Default | Meaning |
|---|---|---|---|
"""
_USES = {"read": "reading", "write": "writing", "both": "both"}


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_row, OPTIONS))


def _row(option: SparkOption) -> str:
    internal = "(internal, set by the store) " if option.internal else ""
    default = option.default or "required"
    return f"| `{option.name}` | {_USES[option.used_in]} | {default} | {internal}{option.meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
