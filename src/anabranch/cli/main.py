"""The entry point of `anabranch`."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from anabranch.errors import MissingExtra


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        try:
            from anabranch.cli.tree import app
        except ImportError as exc:
            if (exc.name or "").partition(".")[0] not in ("typer", "click", "rich"):
                raise
            print(f"anabranch: {MissingExtra('the command line', 'cli')}", file=sys.stderr)
            sys.exit(2)
        app(prog_name="anabranch")
    except KeyboardInterrupt:  # before or after the verb itself, which has its own answer
        sys.exit(130)


def _terminate(signum: int, frame: FrameType | None) -> None:
    # Leave through the stack, so that the store is closed on the way.
    signal.signal(signum, signal.SIG_IGN)
    sys.exit(128 + signum)


if __name__ == "__main__":
    main()
