"""Lists queries, and shows one or its versions."""

from __future__ import annotations

from dataclasses import asdict

from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, put_line, strong
from anabranch.cli.queries.info import NAME_ARGUMENT, info_to_json, needs_text, standby_text, state_text
from anabranch.model.amounts import size_text


def list_queries(as_json: bool = JSON_OPTION) -> None:
    """List the deployed queries, with their state.

    Examples:

      anabranch queries list
      anabranch queries list --json | jq -r '.[] | select(.state == "failed") | .name'
    """
    with open_store() as opened:
        found = opened.queries.list()
    if as_json:
        print_json([info_to_json(info) for info in found])
        return
    print_columns(
        ("QUERY", "STATE", "VERSION", "HOST", "STANDBY", "ROWS/S", "LAG", "RESULTS"),
        [
            (
                info.name,
                state_text(info),
                info.version,
                info.host or "-",
                standby_text(info),
                round(sum(each.get("rows_per_s", 0) for each in info.progress)),
                sum(each.get("lag", 0) for each in info.progress),
                ", ".join(info.results),
            )
            for info in found
        ],
    )
    for info in found:
        if info.refused is not None:
            print_note(f"query '{info.name}' waits: {info.refused}")
        if info.standby_refused is not None:
            print_note(f"query '{info.name}' has no hot standby: {info.standby_refused}")


def show(name: str = NAME_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show a query: its state, what it reads and writes and how far it is, and its statements.

    Example:

      anabranch queries show means
    """
    with open_store() as opened:
        info = opened.queries.get(name)
        version = next((each for each in opened.queries.versions(name) if each.number == info.version), None)
    if as_json:
        print_json({**info_to_json(info), "text": None if version is None else version.text})
        return
    put_line(info.name, bold=True)
    for label, value in {
        "state": state_text(info),
        "version": info.version,
        "host": info.host or "-",
        "standby": standby_text(info) + ("" if info.standby_host is None else f" at {info.standby_host}"),
        **({} if info.standby_refused is None else {"": info.standby_refused}),
        "changed": iso_time(info.changed_at),
        "failures": info.restarts,
        "needs": needs_text(info),
        **({"made": ", ".join(info.made)} if info.made else {}),
        **({} if info.refused is None else {"refused": info.refused}),
        **({} if info.error is None else {"error": " ".join(info.error.split())}),
    }.items():
        put_line(f"  {label:<8} {value}")
    put_line()
    print_columns(
        (
            "RESULT",
            "BATCH",
            "READ",
            "LAG",
            "BEHIND",
            "ROWS/S",
            "WRITTEN",
            "LATE",
            "SHED",
            "STATE ROWS",
            "TOOK",
            "WATERMARK",
        ),
        [
            (
                *(each.get(field, 0) for field in ("target", "batch", "read", "lag")),
                f"{each.get('lag_s', 0):.1f} s",
                round(each.get("rows_per_s", 0)),
                *(each.get(field, 0) for field in ("written", "late", "run_shed", "state_rows")),
                f"{each.get('batch_ms', 0):,} ms",
                iso_time(each.get("watermark_us")),
            )
            for each in info.progress
        ],
        indent="  ",
    )
    if version is not None:
        put_line()
        for file in version.files:
            put_line(f"  {file.kind} {file.name}: {size_text(file.size)}, SHA-256 {file.digest}")
        for label, text in version.parameters.items():
            put_line(f"  {label} = {text}")
        for line in version.text.strip().splitlines():
            put_line(f"  {line.expandtabs()}".rstrip())


def versions(name: str = NAME_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """List the versions of a query. The one that is deployed is marked.

    Example:

      anabranch queries versions means
    """
    with open_store() as opened:
        current, found = opened.queries.get(name).version, opened.queries.versions(name)
    if as_json:
        print_json(
            [
                {
                    "number": each.number,
                    "current": each.number == current,
                    "digest": each.digest,
                    "created_at": iso_time(each.created_at),
                    "parameters": dict(each.parameters),
                    "text": each.text,
                    "files": [asdict(file) for file in each.files],
                    "signature": each.signature,
                }
                for each in found
            ]
        )
        return
    print_columns(
        ("VERSION", "", "DEPLOYED", "DIGEST", "SIGNED", "FILES", "PARAMETERS"),
        [
            (
                each.number,
                strong("current") if each.number == current else "",
                iso_time(each.created_at),
                each.digest[:12],
                "yes" if each.signature else "-",
                ", ".join(file.name for file in each.files) or "-",
                ", ".join(f"{key}={value}" for key, value in each.parameters.items()),
            )
            for each in found
        ],
    )
