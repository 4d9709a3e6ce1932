"""The arguments of several verbs of `anabranch queries`."""

from __future__ import annotations

from typing import Annotated

import typer

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The query's name.")]
ResultArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[RESULT]", help="With several results: the name of the stream, or 1, 2 …", show_default=False
    ),
]
RestartFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--restart-from",
        "--from",
        metavar="PLACE",
        help="Where statements that lose their state start over: head, tail, a time, -15m, or a cut (one per source).",
    ),
]
