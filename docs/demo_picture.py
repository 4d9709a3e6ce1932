"""Makes `demo.svg`, the picture of the demo in the README: a real run, whose last page before its end is kept.

python docs/demo_picture.py [SECONDS]
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from copy import copy
from pathlib import Path

from rich.console import Console

from anabranch.spark.demo import run
from anabranch.spark.demo.screen import Scene, page

WIDTH = 104


def main() -> int:
    """Run the demo for so many seconds (default 45), and draw its screen and its proof."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 45.0
    scenes: list[Scene] = []

    def keep(scene: Scene) -> None:
        if scene.stage == "running" and len(scene.closed) > 8:
            kept = copy(scene)
            kept.closed, kept.meters = list(scene.closed), tuple(copy(meter) for meter in scene.meters)
            for meter in kept.meters:
                meter.past = meter.past.copy()
            scenes[:] = [kept]

    with tempfile.TemporaryDirectory() as folder:
        ending = Console(record=True, width=WIDTH, file=sys.stderr)
        code = run(Path(folder) / "demo", seconds=seconds, console=ending, on_frame=keep)
    if not scenes:
        ending.print("no window was closed; give it more time")
        return 1
    with Path(os.devnull).open("w") as nothing:
        picture = Console(record=True, width=WIDTH, file=nothing)
        picture.print(page(scenes[-1], width=WIDTH))
        svg = picture.export_svg(title="anabranch demo")
    # Rich names a font on the network; a picture in a repository must not ask anybody for anything.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    Path(__file__).with_name("demo.svg").write_text(svg, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
