"""The entry point of `anabranch`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from anabranch import __version__
from anabranch.cli.root_help import print_root_help


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    _open_missing_files()
    signal.signal(signal.SIGTERM, _terminate)
    if _answered_without_loading(sys.argv[1:]):
        return
    try:
        try:
            from anabranch.cli.interrupts import deferred

            with deferred():
                from anabranch.cli.commands import app
        except ImportError as exc:
            if (exc.name or "").partition(".")[0] not in ("typer", "click", "rich"):
                raise
            from anabranch.errors import MissingExtra

            print(f"anabranch: {MissingExtra('the command line', 'cli')}", file=sys.stderr)
            sys.exit(2)
        app(prog_name="anabranch")
    except KeyboardInterrupt:  # before or after the verb, which handles its own interrupts
        sys.exit(130)


def _open_missing_files() -> None:
    """Make standard files that the caller has closed empty ones: Python leaves them None, and the next file that is opened
    would get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - lives as long as the process


def _answered_without_loading(arguments: list[str]) -> bool:
    """Print the root help or the release, for which nothing else need be loaded; False for all other arguments."""
    if arguments in (["--help"], ["-h"]):
        print_root_help()
    elif arguments == ["--version"]:
        print(f"anabranch {__version__}")
    else:
        return False
    return True


def _terminate(signum: int, frame: FrameType | None) -> None:
    # Exit by unwinding the stack, so that the store is closed on the way.
    signal.signal(signum, signal.SIG_IGN)
    sys.exit(128 + signum)


if __name__ == "__main__":
    main()
