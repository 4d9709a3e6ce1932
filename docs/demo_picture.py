"""Makes `demo.svg`, the picture of the demo in the README: a real run in a terminal, with its last page and its proof.

python docs/demo_picture.py [SECONDS]
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 118
LINES = 60
REDRAWN = "\x1b[2K"  # the live table erases its lines before it draws them again


def main() -> int:
    """Run the demo for so many seconds (default 45), and draw what its terminal shows at the end."""
    seconds = sys.argv[1] if len(sys.argv) > 1 else "45"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvp(sys.executable, [sys.executable, "-m", "anabranch.cli.main", "demo", "--seconds", seconds])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, WIDTH, 0, 0))
        shown = _read(terminal)
        _, status = os.waitpid(pid, 0)
    page = re.sub(r"\x1b\[\?25[lh]", "", shown.rpartition(REDRAWN)[2]).replace("\r", "")
    with Path(os.devnull).open("w") as nothing:
        picture = Console(record=True, width=WIDTH, file=nothing)
        picture.print(Text.from_ansi(page))
        svg = picture.export_svg(title="anabranch demo")
    # Rich names a font on the network; a picture in a repository must not ask anybody for anything.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    Path(__file__).with_name("demo.svg").write_text(svg, encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


def _read(terminal: int) -> str:
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the terminal was closed at the other end
            data = b""
        if not data:
            return shown.decode()
        shown += data


if __name__ == "__main__":
    sys.exit(main())
