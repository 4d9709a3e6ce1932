"""The arguments of several verbs of `anabranch queries`."""

from __future__ import annotations

from typing import Annotated

from anabranch.cli.declare import argument, option

NameArgument = Annotated[str, argument("NAME", "The query's name.")]
ResultArgument = Annotated[str | None, argument("[RESULT]", "With several results: the name of the stream, or 1, 2 …")]
RestartFromOption = Annotated[
    list[str] | None,
    option(
        "--restart-from --from",
        "PLACE",
        "Where statements that lose their state start over: head, tail, a time, -15m, or a cut (one per source).",
    ),
]
