"""`python -m bench`, or `./dev bench`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import (
    algebra_cost,
    algebra_many,
    algebra_move,
    algebra_read,
    append_batches,
    append_events,
    catch_up,
    cluster_append,
    cluster_commits,
    cluster_conditions,
    cluster_sizes,
    machine,
    many_segments,
    one_event,
    producers,
    put_latency,
    queries_deploy,
    queries_influxql,
    queries_near_data,
    queries_shed,
    queries_sketches,
    queries_state,
    queries_takeover,
    queries_windows,
    readers_group,
    readers_notifications,
    readers_prefetch,
    readers_state,
    readers_transactions,
    serve_client,
    serve_delay,
    serve_flight,
    serve_followers,
    serve_post,
    spark_history,
    spark_microbatch,
    table,
    tail_latency,
)
from bench.peers.fetch import fetch
from bench.result import Benchmark, BenchmarkSetting

FIGURES: dict[str, Benchmark] = {
    module.FIGURE.name: module.FIGURE
    for module in (
        append_batches,
        append_events,
        one_event,
        producers,
        catch_up,
        tail_latency,
        many_segments,
        put_latency,
        spark_history,
        spark_microbatch,
        cluster_commits,
        cluster_conditions,
        cluster_append,
        cluster_sizes,
        algebra_cost,
        algebra_many,
        algebra_read,
        algebra_move,
        readers_group,
        readers_notifications,
        readers_prefetch,
        readers_state,
        readers_transactions,
        serve_post,
        serve_followers,
        serve_client,
        serve_flight,
        serve_delay,
        queries_near_data,
        queries_windows,
        queries_shed,
        queries_sketches,
        queries_state,
        queries_takeover,
        queries_deploy,
        queries_influxql,
    )
}
# Several figures under one name.
GROUPS: dict[str, list[str]] = {"cluster": [name for name in FIGURES if name.startswith("cluster_")]}
GROUPS["algebra"] = [name for name in FIGURES if name.startswith("algebra")]
GROUPS["cluster"] += [name for name in ("put_latency",) if name in FIGURES]
GROUPS["readers"] = [name for name in FIGURES if name.startswith("readers_")]
GROUPS["queries"] = [name for name in FIGURES if name.startswith("queries_")]
GROUPS["serve"] = [name for name in FIGURES if name.startswith("serve_")]
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.md"
_LASTING = Path("/var/tmp")  # where /tmp is in memory, this usually is not


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and prints the results. Returns the exit code: 0 unless a figure could not be measured."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.names == ["peers"]:
        return fetch()
    for name in chosen.names:
        if name not in FIGURES and name not in GROUPS:
            parser.error(f"unknown figure '{name}'")
    if chosen.write and chosen.quick:
        parser.error("a quick run's numbers are not worth keeping: --write goes without --quick")
    log = Console(stderr=True, highlight=False)
    requested = [*chosen.names, *(chosen.only or ())]
    names = [name for each in requested for name in GROUPS.get(each, [each])] or list(FIGURES)
    if chosen.light:
        names = [name for name in names if not FIGURES[name].heavy]
    with _folder(chosen.folder) as folder:
        about = machine.describe(folder)
        figures: dict[str, Any] = {}
        failed = []
        for name in names:
            log.print(f"{FIGURES[name].title} …", markup=False)
            place = folder / name
            place.mkdir()
            try:
                setting = BenchmarkSetting(place, chosen.quick, lambda line: log.print(f"  {line}", markup=False))
                results = FIGURES[name].run(setting)
            except Exception:
                log.print_exception()
                failed.append(name)
                continue
            finally:
                shutil.rmtree(place, ignore_errors=True)
            figures[name] = {
                "title": FIGURES[name].title,
                "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                "results": [result.to_json() for result in results],
            }
            if chosen.write:  # at once: an interrupted run keeps what was measured
                _write(about, {name: figures[name]})
    if chosen.json:
        sys.stdout.write(json.dumps({"machine": about, "quick": chosen.quick, "figures": figures}, indent=1) + "\n")
    else:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
        for name, value in about.items():
            console.print(f"{name}: {value}", markup=False, soft_wrap=True)
        table.show((line for figure in figures.values() for line in figure["results"]), console)
    return 1 if failed else 0


def _write(about: dict[str, str], figures: dict[str, Any]) -> None:
    """Updates the committed page, and the file that it is made from, with the new figures."""
    kept = PAGE.with_suffix(".json")
    whole = table.merged(kept, about, figures)
    whole["figures"] = {name: whole["figures"][name] for name in FIGURES if name in whole["figures"]}
    PAGE.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(table.page(about, whole["figures"]))


@contextmanager
def _folder(chosen: Path | None) -> Iterator[Path]:
    """Yields an empty folder on the disk to measure, removed afterwards."""
    where = chosen or (_LASTING if _LASTING.is_dir() else Path(tempfile.gettempdir()))
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-", dir=where) as name:
        yield Path(name)


def _parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {figure.name:<18}{figure.title}{' (heavy)' * figure.heavy}" for figure in FIGURES.values())
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description="Measure the store, with the floor of this machine or another system beside each figure.",
        epilog=f"figures:\n{listing}\n\nHeavy ones take minutes. The machine should have nothing else to do.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help=f"measure these; {', '.join(GROUPS)} stands for all that begin so. `peers` fetches Kafka instead",
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", choices=list(FIGURES), help="measure this figure; may be repeated"
    )
    parser.add_argument("--light", action="store_true", help="leave the heavy figures out")
    parser.add_argument("--quick", action="store_true", help="about a second a figure, to see that all of it works")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--write", action="store_true", help="update docs/reference/benchmarks.md (not with --quick)")
    parser.add_argument(
        "--folder", type=Path, metavar="PATH", help="measure on the disk that holds this folder (default: /var/tmp)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
