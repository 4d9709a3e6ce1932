"""`anabranch version`."""

from __future__ import annotations

from anabranch import __version__
from anabranch.cli.declare import without_store
from anabranch.cli.options import JSON_OPTION
from anabranch.cli.output import print_json, put_line


@without_store
def version(as_json: bool = JSON_OPTION) -> None:
    """Print the release.

    Example:

      anabranch version --json
    """
    if as_json:
        print_json({"version": __version__})
    else:
        put_line(f"anabranch {__version__}")
