"""Single edits of the catalog's rows, behind the store's back, and what a store makes of them.

As a program, for runs under `python -O`: `python -O -m tests.store.damage FOLDER SEED COUNT` prints one line for each edit
that does not hold what is promised.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.catalog.sqlite.adapter import FILE
from anabranch.errors import AnabranchError, NotFound
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.store.producers import ProducerInfo

SETTINGS = Settings(inline_bytes_max=2_000)
SCHEMA = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
SQLITES_OWN = {"sqlite_sequence"}  # which ids were given: SQLite's table, which no store reads or writes
DAY = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


# a store with everything in it


def fill(store: Store, folder: Path) -> None:
    """Scaled, truncated, copied and stitched streams, an alias, a former name, attached files, a reader group, open and ended
    transactions, a job, policies, leases, tags; Parquet, Arrow and inlined extents."""
    streams = store.streams
    store.scopes.create("iot", tags={"a": "ü"})
    store.scopes.create("other")
    streams.create("iot/sensors", schema=SCHEMA, key="device", time="at", scaling=2, tags={"site": "north"})
    with store.writer("iot/sensors", writer_id="w") as writer:
        writer.write_batch(rows(0, 300)).result(120)
        streams.scale("iot/sensors", 3)
        writer.write_batch(rows(300, 300)).result(120)
        store.compact(force=True)
        streams.truncate("iot/sensors", store.cuts.at("iot/sensors", DAY + dt.timedelta(seconds=20), by="event"))
        writer.write_batch(rows(600, 300)).result(120)
        for number in (900, 901):
            writer.write_batch(rows(number, 1)).result(120)
    streams.create("iot/raw", retention=ab.RetainFor("3000d"))
    with store.writer("iot/raw") as writer:
        for number in range(3):
            writer.write(b"%d" % number, key="k").result(120)
    streams.copy("iot/sensors", "iot/copy")
    streams.stitch(["iot/copy", "iot/sensors"], into="iot/both")
    streams.create("iot/gone")
    streams.rename("iot/gone", "iot/kept")
    streams.seal("iot/kept")
    store.aliases.add("iot/raw", "iot/byname")
    streams.evolve("iot/copy", pa.schema([*SCHEMA, ("more", pa.string())]))
    streams.create_ephemeral("iot/brief") if hasattr(streams, "create_ephemeral") else None
    (folder / "plain").mkdir()
    pq.write_table(rows(0, 50), folder / "plain" / "a.parquet")
    store.archives.attach(folder / "plain", "iot/plain", key="device", time="at")
    group = store.groups.open("iot/readers", streams=["iot/sensors"])
    with group.reader("r") as reader:
        next(iter(reader))
    for name in ("p", "q"):
        with store.writer("iot/raw", producer=name) as writer:
            for number in range(3):
                writer.write(b"%d" % number, key=name).result(120)
    with store.transaction() as txn:
        txn.writer("iot/raw").write(b"txn")
    txn = store.transaction()
    txn.writer("iot/raw").write(b"never")
    txn.flush()
    streams.copy("iot/raw", "other/apart", independent=True)
    store.collect()
    held = store.hold("scan", "me")
    held.__enter__()


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    times = [DAY + dt.timedelta(seconds=n // 10) for n in numbers]
    return pa.table({"device": [f"d{n % 9}" for n in numbers], "at": times, "n": list(numbers)}, schema=SCHEMA)


# edits


@dataclass(frozen=True)
class Edit:
    """One value of one row, changed."""

    table: str
    column: str
    row: Any  # what tells the row: its rowid, or its key
    kind: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.table}.{self.column} of {self.row}, {self.kind}: {self.before!r:.60} → {self.after!r:.60}"


def changed(value: Any, others: list[Any], rng: random.Random) -> Iterator[tuple[str, Any]]:
    """What may become of a value."""
    yield from (
        ("null", None),
        ("zero", 0),
        ("negative", -1),
        ("huge", 1 << 62),
        ("empty text", ""),
        ("bytes", b"\xff\x00"),
    )
    if others:
        yield "swapped", rng.choice(others)
    match value:
        case int():
            yield from (
                ("one more", value + 1),
                ("one less", value - 1),
                ("as text", f"x{value}"),
                ("real", value + 0.5),
            )
            yield "bit flip", value ^ 1 << rng.randrange(62)
            yield "high bit", value ^ 1 << 32
        case str():
            bits = bytearray(value.encode())
            if bits:
                bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(7)
                yield "bit flip", bits.decode(errors="replace")
                yield "cut", value[: len(value) // 2]
            yield "longer", value + "x"
        case bytes():
            bits = bytearray(value)
            if bits:
                bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
                yield "bit flip", bytes(bits)
                yield "cut", value[: len(value) // 2]
            yield "longer", value + b"x"
            yield "text", "text"
        case _:
            yield "some number", rng.randrange(1 << 40)
            yield "text", "text"


def all_edits(file: Path, rng: random.Random, *, rows_max: int) -> list[Edit]:
    """Edits of each column of the database, whatever tables it has."""
    found = []
    with apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY) as database:
        named: list[Any] = database.execute(
            "select name from sqlite_master where type = 'table' order by name"
        ).fetchall()
        for (table,) in named:
            if table in SQLITES_OWN:
                continue
            info: list[Any] = database.execute(f"pragma table_info({table})").fetchall()
            columns = [row[1] for row in info]
            key = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
            content = database.execute(f"select {', '.join(map(quoted, columns))} from {table}").fetchall()
            assert content, f"the store has nothing in {table}"
            for at, column in enumerate(columns):
                for row in rng.sample(content, min(rows_max, len(content))):
                    where = {name: row[columns.index(name)] for name in key}
                    others = [other[at] for other in content if other[at] != row[at]]
                    for kind, after in changed(row[at], others, rng):
                        found.append(Edit(table, column, tuple(where.items()), kind, row[at], after))
    return found


def quoted(name: str) -> str:
    return f'"{name}"'


def apply(edit: Edit, database: apsw.Connection) -> bool:
    """False where the database refuses it, or where it changes nothing."""
    where = " and ".join(f"{quoted(name)} is ?" for name, _ in edit.row)
    values = [value for _, value in edit.row]
    read = f"select {quoted(edit.column)} from {edit.table} where {where}"
    try:
        database.execute(f"update {edit.table} set {quoted(edit.column)} = ? where {where}", (edit.after, *values))
    except apsw.ConstraintError:
        return False
    except apsw.MismatchError:  # a rowid is a number
        return False
    kept = [edit.after if name == edit.column else value for name, value in edit.row]
    row = database.execute(read, kept).fetchone()
    return row is None or (type(row[0]), row[0]) != (type(edit.before), edit.before)


# what a store makes of them


def contents(store: Store) -> dict[str, Callable[[], Any]]:
    """All that can be read, by what it is: calls that answer, or raise."""
    looks: dict[str, Callable[[], Any]] = {
        "list": lambda: [(str(info.name), dict(info.tags), info.sealed) for info in store.streams.list()],
        "scopes": lambda: [(scope.name, dict(scope.tags)) for scope in store.scopes.list()],
        "groups": lambda: store.groups.list(),
        "producers": partial(producers, store),
    }
    for name in (
        "iot/sensors",
        "iot/raw",
        "iot/copy",
        "iot/both",
        "iot/kept",
        "iot/byname",
        "iot/plain",
        "other/apart",
    ):
        looks[name] = partial(read, store, name)
    for seconds in (25, 70):
        looks[f"cut at {seconds}"] = partial(cut, store, DAY + dt.timedelta(seconds=seconds))
    looks["cut by append"] = lambda: str(store.cuts.at("iot/both", DAY, by="append"))
    window = (DAY + dt.timedelta(seconds=25), DAY + dt.timedelta(seconds=31))
    looks["window"] = lambda: read(store, "iot/both", between=window)
    return looks


def producers(store: Store) -> list[ProducerInfo]:
    """Those of a stream. A row that now names another stream or producer is missing, which only the check can tell."""
    found = store.producers.list("iot/raw")
    if [each.name for each in found] != ["p", "q"]:
        raise NotFound("a producer is missing")
    return found


def cut(store: Store, moment: dt.datetime) -> str:
    return str(store.cuts.at("iot/sensors", moment, by="event"))


def read(store: Store, name: str, **options: Any) -> pa.Table | None:
    with store.reader(name, **options) as reader:
        batches = list(reader.batches())
    return pa.Table.from_batches(batches) if batches else None


def answers(store: Store) -> dict[str, Any]:
    return {what: look() for what, look in contents(store).items()}


def faults(store: Store, expected: dict[str, Any], *, changing: bool) -> Iterator[str]:
    """What does not hold of a store one of whose rows was damaged. `changing` also changes it, and looks for raw exceptions."""
    for what, look in contents(store).items():
        try:
            found = look()
        except AnabranchError:
            continue
        except Exception as exc:
            yield f"{what}: raised {exc!r:.200}"
            continue
        if found != expected[what]:
            yield f"{what}: other answers than were written"
    try:
        if not list(store.check()):
            yield "check finds nothing"
    except AnabranchError:
        pass
    except Exception as exc:
        yield f"check raised {exc!r:.200}"
    for verb, act in acts(store).items() if changing else ():
        try:
            act()
        except AnabranchError:
            pass
        except Exception as exc:
            yield f"{verb} raised {exc!r:.200}"


def acts(store: Store) -> dict[str, Callable[[], object]]:
    return {
        "write": lambda: write(store, "iot/raw", b"more"),
        "write again": lambda: write(store, "iot/sensors", {"device": "d1", "at": DAY, "n": 1}),
        "write as a producer": lambda: store.producer("iot/raw", "p").append([b"produced"]).result(60),
        "compact": lambda: store.compact(force=True),
        "retain": lambda: store.retain(),
        "collect": lambda: store.collect(),
        "repair": lambda: list(store.repair(dry_run=True)),
        "scale": lambda: store.streams.scale("iot/sensors", 2),
        "copy": lambda: store.streams.copy("iot/both", "iot/another"),
        "jobs": lambda: list(store.jobs.list()),
        "transactions": lambda: list(store.transactions.list()),
    }


def write(store: Store, name: str, event: Any) -> None:
    with store.writer(name, writer_id="w") as writer:
        writer.write(event).result(60)


# edit after edit


def try_all(folder: Path, seed: int, count: int) -> tuple[int, list[str]]:
    """How many edits were made, and what did not hold, of a new store below `folder`."""
    rng = random.Random(seed)
    river, kept = folder / "river", folder / "kept"
    with ab.connect(river, settings=SETTINGS, create=True) as store:
        fill(store, folder)
        expected = answers(store)
        assert not list(store.check()), list(store.check())
    with apsw.Connection(str(river / FILE)) as database:
        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    shutil.copy(river / FILE, kept)
    todo = all_edits(kept, rng, rows_max=3)
    rng.shuffle(todo)
    made, wrong = 0, []
    for edit in spread(todo):
        if made == count:
            break
        for old in river.glob(FILE + "*"):
            old.unlink()
        shutil.copy(kept, river / FILE)
        with apsw.Connection(str(river / FILE)) as database:
            database.pragma("foreign_keys", False)
            done = apply(edit, database)
        if not done:
            continue
        made += 1
        try:
            with ab.connect(river, settings=SETTINGS, create=False) as store:
                wrong += [f"{edit}: {what}" for what in faults(store, expected, changing=made % 6 == 0)]
        except AnabranchError:
            pass
        except Exception as exc:
            wrong.append(f"{edit}: connect or close raised {exc!r}")
    return made, wrong


def spread(edits: list[Edit]) -> Iterator[Edit]:
    """The first edit of each column, then the second of each, and so on."""
    columns: dict[tuple[str, str], list[Edit]] = {}
    for edit in edits:
        columns.setdefault((edit.table, edit.column), []).append(edit)
    while columns:
        for column, left in list(columns.items()):
            yield left.pop()
            if not left:
                del columns[column]


if __name__ == "__main__":
    at, begun_with, how_many = sys.argv[1:]
    number, found_wrong = try_all(Path(at), int(begun_with), int(how_many))
    print("\n".join([f"{number} edits", *found_wrong]))
