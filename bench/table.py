"""Formats results for people: in a terminal, and as the committed page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

Line = Mapping[str, Any]  # a Result's plain values, fresh or from the committed file

_VERDICTS = {True: "met", False: "MISSED", None: ""}
_HEADINGS = ("what", "ours", "beside", "ratio", "at least / at most", "")


def show(lines: Iterable[Line], console: Console) -> None:
    """Prints a table, and the notes below it."""
    table = Table(*_HEADINGS, show_lines=True, highlight=False)
    notes = []
    for number, line in enumerate(lines, 1):
        what, ours, beside, ratio, target, verdict = _cells(line)
        style = {"met": "green", "MISSED": "bold red"}.get(verdict, "")
        table.add_row(f"{what} ({number})", ours, beside, ratio, target, Text(verdict, style))
        notes.append(f"({number}) " + "; ".join(line["notes"]))
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def page(machine: Mapping[str, str], figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the committed page."""
    every = [line for figure in figures.values() for line in figure["results"]]
    judged = [line for line in every if line["target"] is not None]
    missed = [line for line in judged if line["met"] is False]
    unknown = [line for line in judged if line["met"] is None]
    text = [
        "# Benchmarks",
        "",
        "Written by `./dev bench --write`. Each figure is held against a floor of the same machine or against another",
        "system, measured in the same run and in turn with it; numbers are medians over the rounds, and a ratio is the",
        "median of the rounds' ratios (in brackets the smallest and the greatest). Payloads are of 100 bytes. All were",
        "measured on the same kind of processor; the kernel and the libraries are those of the newest figures.",
        "",
        *(f"- **{name}**: {value}" for name, value in machine.items()),
        "",
        f"Of {len(judged)} targets {sum(line['met'] is True for line in judged)} are met"
        + (f", {len(missed)} missed: {'; '.join(line['what'] for line in missed)}" if missed else "")
        + (f", {len(unknown)} not measured: {'; '.join(line['what'] for line in unknown)}" if unknown else "")
        + ".",
        "",
    ]
    for figure in figures.values():
        text += [f"## {figure['title'][0].upper()}{figure['title'][1:]}", "", f"Measured {figure['date']}.", ""]
        text += ["| what | ours | beside | ratio | target | result |", "|---|---:|---|---:|---|---|"]
        for line in figure["results"]:
            what, ours, beside, ratio, target, verdict = _cells(line)
            mark = f"**{verdict}**" if verdict == "MISSED" else verdict
            text.append(f"| {what} | {ours} | {beside} | {ratio} | {target} | {mark} |")
        text.append("")
        seen: dict[str, None] = {}
        for line in figure["results"]:
            prefix = f"{line['what']}: " if len(figure["results"]) > 1 else ""
            seen.update(dict.fromkeys(f"- {prefix}{note}" for note in line["notes"]))
        text += [*seen, ""] if seen else []
    return "\n".join(text)


def merged(path: Path, machine: Mapping[str, str], fresh: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the figures in a file, updated with new ones; those of another machine are dropped."""
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    same = kept.get("machine", {}).get("processor") == machine["processor"]
    return {"machine": dict(machine), "figures": {**(kept.get("figures", {}) if same else {}), **fresh}}


def _cells(line: Line) -> tuple[str, str, str, str, str, str]:
    unit = line["unit"]
    beside = "" if line["other"] is None else f"{_number(line['other'])} {unit}: {line['other_name']}"
    ratio = "" if line["ratio"] is None else f"{line['ratio']:.2f} ×"
    if line["spread"] is not None:
        low, high = line["spread"]
        ratio += f" ({low:.2f} – {high:.2f})"
    verdict = "not measured" if line["target"] and line["met"] is None else _VERDICTS[line["met"]]
    return line["what"], f"{_number(line['ours'])} {unit}", beside, ratio, line["target"] or "", verdict


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
