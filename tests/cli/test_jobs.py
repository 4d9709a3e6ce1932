"""Jobs, from the command line."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.job import JOB
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.target_store import finish
from anabranch.model.ids import Micros
from anabranch.transfer.jobs.record import JobState
from tests.cli.kit import Line
from tests.store.transfer.jobs.kit import SCHEMA, SETTINGS, Gate, fill, image, live, opened, small_ranges, stop_at
from tests.waiting import PATIENCE_S, until, until_ended


@pytest.fixture
def elsewhere(tmp_path: Path) -> Line:
    """Another store, with the scope `t`."""
    line = Line(tmp_path / "elsewhere")
    line("scope", "create", "t")
    return line


def test_copy_append_and_stitch_go_to_another_store(sensors: Line, elsewhere: Line) -> None:
    to = ("--to-store", elsewhere.store)
    told = sensors("copy", "iot/sensors", "t/b", *to, "--json").json
    assert (told["name"], told["events"]) == ("t/b", 3)
    assert elsewhere("read", "t/b", "--format", "csv").out == sensors("read", "iot/sensors", "--format", "csv").out
    assert "3 events" in sensors("copy", "iot/sensors", "t/b", *to).err
    assert sensors("append", "iot/sensors", "t/b", *to, "--json").json["appended"] == 3
    sensors("stitch", "iot/sensors", "iot/sensors", "--into", "t/two", *to)
    assert elsewhere("stream", "show", "t/two", "--json").json["events"] == 6
    verbs = [row["verb"] for row in elsewhere("job", "list", "--json").json]
    assert verbs == ["copy", "copy", "append", "stitch"]
    lines = [line.split()[1:] for line in elsewhere("job", "list").out.splitlines()]
    assert ["append", "iot/sensors", "t/b", "done", "100", "%", "-"] in lines
    assert sensors.refused("copy", "iot/raw", "t/b", *to) == "stream 't/b' already exists"
    assert "is not the address of a store" in sensors.refused("copy", "iot/raw", "t/c", "--to-store", "ftp://x")


@pytest.mark.parametrize("option", ["--to-blobs", "--to-history", "--to-keys"])
def test_parts_of_another_store_are_refused_without_the_store(sensors: Line, option: str) -> None:
    for verb in (
        ("copy", "iot/sensors", "iot/b"),
        ("append", "iot/sensors", "iot/sensors"),
        ("stitch", "iot/sensors", "--into", "iot/b"),
        ("scope", "copy", "iot", "u"),
    ):
        assert "add --to-store PATH" in sensors.refused(*verb, option, "elsewhere")
    assert "iot/b" not in sensors("stream", "list").out and "u" not in sensors("scope", "list").out.split()


def test_scope_copy_goes_to_another_store(sensors: Line, elsewhere: Line) -> None:
    assert sensors("scope", "copy", "iot", "u", "--to-store", elsewhere.store, "--json").json["streams"] == 2
    assert [row["name"] for row in elsewhere("stream", "list", "u", "--json").json] == ["u/raw", "u/sensors"]


def test_stitch_leaves_out_repeats_and_reports_how_many(sensors: Line) -> None:
    sensors("copy", "iot/sensors", "iot/more", "--independent")
    done = sensors(
        "stitch", "iot/sensors", "iot/more", "--into", "iot/all", "--deduplicate", "device,at", "--prefer", "2"
    )
    assert done.err.endswith("created 'iot/all' with 3 events; 3 repeats left out\n")
    assert "none of them has 'colour'" in sensors.refused(
        "stitch", "iot/sensors", "--into", "iot/x", "--deduplicate", "colour"
    )
    stitch = ("stitch", "iot/sensors", "iot/more", "--into", "iot/x", "--prefer")
    assert "add --deduplicate" in sensors.refused(*stitch, "2")
    for numbers in ("me", "0", "3", "1,1"):
        refused = sensors.refused(*stitch, numbers, "--deduplicate", "device,at")
        assert f"numbers of streams from 1 to 2, each once, as 2,1, not '{numbers}'" in refused


def test_stitch_takes_streams_of_several_stores(sensors: Line, elsewhere: Line) -> None:
    sensors("copy", "iot/sensors", "t/b", "--to-store", elsewhere.store)
    lake = ("--from-store", f"lake={elsewhere.store}")
    told = sensors("stitch", "iot/sensors", "lake:t/b[head,]", "--into", "iot/all", *lake, "--json").json
    assert told["events"] == 6
    job = sensors("job", "show", told["job"], "--json").json
    assert job["from"] == ["here", str(elsewhere.store)]
    assert sensors("job", "show", told["job"]).out.count(str(elsewhere.store)) == 1
    refused = sensors.refused("stitch", "sea:t/b", "--into", "iot/x", *lake)
    assert refused == "the location of store 'sea' is missing: add --from-store sea=PATH"
    assert sensors.refused("stitch", "iot/sensors", "--into", "iot/x", "--from-keys", "sea=file:keys") == refused
    assert "the location of store 'sea' is missing" in sensors.refused(
        "stitch", "lake:t/b", "--into", "iot/x", *lake, "--from-blobs", "sea=x"
    )
    assert "expected a name for each store" in sensors.refused(
        "stitch", "lake:t/b", "--into", "iot/x", "--from-store", "lake"
    )


def test_a_stitch_is_resumed_after_its_stores_were_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_ranges(monkeypatch)
    line = Line(tmp_path / "here")
    line("key", "new", tmp_path / "keys")
    keys = f"file:{tmp_path / 'keys'}"
    with opened("postgres", tmp_path / "blobs") as river:
        with opened("folder", tmp_path / "here") as target, opened("folder", tmp_path / "lake", keys=keys) as lake:
            for number, store in enumerate((target, river, lake)):
                store.scopes.create("s")
                store.streams.create("s/x", schema=SCHEMA, key="device", time="at")
                fill(store, "s/x", number * 100, number * 100 + 60)
            gate = Gate(target, 2)
            sources = [ab.InStore(store, "s/x") for store in (target, river, lake)]
            job = target.jobs.stitch(target, sources, "s/all", window=1)
            stop_at(gate, job, job.pause)
        for name in ("blobs", "lake", "keys"):
            (tmp_path / name).rename(tmp_path / f"moved-{name}")
        shown = line("job", "show", job.id).out
        assert f"1 here, 2 {river.job_store.place['url']}, 3 {tmp_path / 'lake'}\n" in shown

        resume, lake_moved = ("job", "resume", job.id), tmp_path / "moved-lake"
        assert f"no store found in {tmp_path / 'blobs'};" in line.refused(*resume)
        said = line.refused(*resume, "--from-store", lake_moved)
        assert said == f"name the store by its number in job show: --from-store 2={lake_moved}"
        assert "no other store with the number 1;" in line.refused(*resume, "--from-keys", f"1={keys}")
        places = ["--from-store", f"3={lake_moved}", "--from-blobs", f"2={tmp_path / 'moved-blobs'}"]
        assert "keys" in line.refused(*resume, *places)
        line(*resume, *places, "--from-keys", f"3=file:{tmp_path / 'moved-keys'}")
        wanted = [*range(60), *range(100, 160), *range(200, 260)]
        assert [row["n"] for row in line("read", "s/all", "--json").rows] == wanted


def test_a_copy_is_resumed_after_its_store_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_ranges(monkeypatch)
    line = Line(tmp_path / "b")
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        live(source)
        target.scopes.create("t")
        gate = Gate(target, 2)
        job = target.jobs.copy(source, "s/a", "t/b", window=1)
        stop_at(gate, job, job.pause)
    (tmp_path / "a").rename(tmp_path / "moved")
    assert "380 events of 380" in line("job", "resume", job.id, "--from-store", tmp_path / "moved").err


def test_append_leaves_out_repeats_and_reports_how_many(sensors: Line, elsewhere: Line) -> None:
    done = sensors("append", "iot/sensors", "iot/sensors", "--deduplicate", "device,at")
    assert done.err.endswith("0 events of 'iot/sensors' are appended to 'iot/sensors'; 3 repeats left out\n")
    sensors("copy", "iot/sensors", "t/b", "--to-store", elsewhere.store)
    told = sensors(
        "append", "iot/sensors", "t/b", "--to-store", elsewhere.store, "--deduplicate", "device,at", "--json"
    ).json
    assert (told["appended"], told["repeats"]) == (0, 3)
    assert "none of them has 'x'" in sensors.refused("append", "iot/sensors", "iot/sensors", "--deduplicate", "x")


def test_stitch_into_another_store_deletes_its_sources(sensors: Line, elsewhere: Line) -> None:
    sensors("copy", "iot/sensors", "iot/more")
    line = ("stitch", "iot/sensors", "iot/more", "--into", "t/all", "--to-store", elsewhere.store, "--drop-sources")
    told = sensors(*line, "--yes", "--json").json
    assert told["events"] == 6
    left = [each["name"] for each in sensors("stream", "list", "iot", "--json").json]
    assert "iot/sensors" not in left and "iot/more" not in left
    job = elsewhere("job", "show", told["job"], "--json").json
    assert (job["state"], job["still_to_do"]) == ("done", None)


def test_copy_follows_for_a_while(sensors: Line, elsewhere: Line) -> None:
    told = sensors(
        "copy", "iot/sensors", "t/b", "--to-store", elsewhere.store, "--follow", "--idle", "50ms", "--json"
    ).json
    assert (told["events"], told["followed"], told["lag"]) == (3, 0, 0)
    assert elsewhere("job", "show", told["job"], "--json").json["lag_events"] == 0
    assert "add --follow" in sensors.refused("copy", "iot/sensors", "iot/x", "--for", "1s")
    assert "not a duration" in sensors.refused("copy", "iot/sensors", "iot/x", "--follow", "--for", "soon")


def test_a_paused_job_is_shown_resumed_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_ranges(monkeypatch)
    with ab.connect(tmp_path / "a", settings=SETTINGS, create=True) as source:
        live(source)
        whole = image(source, "s/a")
        target = ab.connect(tmp_path / "b", settings=SETTINGS, create=True)
        target.scopes.create("t")
        gate = Gate(target, 4)
        job = target.jobs.copy(source, "s/a", "t/b", window=1).id
        gate.wait()
        line = Line(tmp_path / "b")
        assert line("job", "wait", job, "--timeout", "0.1", code=1).err == f"job {job} is still running\n"
        assert "another process runs" in line.refused("job", "resume", job)
        running = line("job", "show", job, "--json").json
        assert running["bytes_per_s"] > 0 and running["seconds_left"] > 0
        assert "s left" in line("job", "list").out
        closing = threading.Thread(target=target.close)
        closing.start()
        until(lambda: target.jobs._closed)
        gate.open.set()
        until_ended(closing)
    shown = line("job", "show", job, "--ranges", "--json").json
    assert shown["state"] == "paused"
    assert 0 < shown["events"] < shown["events_total"] == 380
    assert sum(each["reached"] - each["from"] for each in shown["ranges"]) == shown["events"]
    assert {each["stream"] for each in shown["ranges"]} == {"s/a"}
    assert "SEGMENT" in line("job", "show", job, "--ranges").out
    assert line.refused("job", "wait", job) == f"job {job} was paused"
    gone_silent(tmp_path / "b", in_us=300_000)
    assert line("job", "pause", job, "--json").json["state"] == "paused"
    gone_silent(tmp_path / "b")
    assert [row["state"] for row in line("job", "list", "--json").json] == ["silent"]
    assert "380 events of 380" in line("job", "resume", job).err
    assert line("job", "wait", job, "--json").json["state"] == "done"
    with ab.connect(tmp_path / "b", create=True) as target:
        assert image(target, "t/b") == whole


def gone_silent(store: Path, in_us: int = 0) -> None:
    """Make the only job look as if its process was killed half a minute ago, or `in_us` later."""
    with ab.connect(store, create=True) as opened, opened.catalog.writing() as txn:
        ((_, row),) = txn.states(JOB)
        seen_at = Micros(opened.runtime.clock.now() - limits.JOB_HEARTBEAT_TIMEOUT_US + in_us)
        row = replace(row, state=JobState.RUNNING, owner="gone", seen_at=seen_at)
        txn.put_state(JOB, row.id, row)


def test_a_job_is_paused_and_cancelled_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_ranges(monkeypatch)
    monkeypatch.setattr(limits, "JOB_HEARTBEAT_TIMEOUT_US", 60_000_000)
    with (
        ab.connect(tmp_path / "a", settings=SETTINGS, create=True) as source,
        ab.connect(tmp_path / "b", settings=SETTINGS, create=True) as target,
    ):
        live(source)
        target.scopes.create("t")
        job = target.jobs.copy(source, "s/a", "t/b", follow=True)
        line = Line(tmp_path / "b")
        assert line("job", "pause", job.id, "--json").json["state"] == "paused"
        target.jobs.resume(job.id, source=source)
        assert line("job", "cancel", job.id, "--json").json["state"] == "cancelled"
        assert line.refused("job", "resume", job.id) == f"job {job.id} was cancelled"
        assert line.refused("job", "show", "nope").startswith("job 'nope' not found")


def test_an_interrupt_pauses_the_job_and_says_how_to_continue(sensors: Line, elsewhere: Line) -> None:
    process = sensors.start("copy", "iot/sensors", "t/b", "--to-store", elsewhere.store, "--follow")

    def is_there() -> bool:
        assert process.poll() is None
        return "t/b" in [row["name"] for row in elsewhere("stream", "list", "--json").json]

    until(is_there)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    (row,) = elsewhere("job", "list", "--json").json
    assert process.returncode == 130
    said = f"job {row['job']} is paused; continue with: anabranch --store {elsewhere.store} job resume {row['job']}"
    assert said in err.decode()
    assert row["state"] == "paused"


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        ("postgresql://me:s3cret@db/river", "postgresql://me@db/river"),
        ("/data/my river", "'/data/my river'"),
        ("./river", "./river"),
    ],
)
def test_the_command_that_continues_a_job_is_for_a_shell_and_has_no_password(
    capsys: pytest.CaptureFixture[str], store: str, shown: str
) -> None:
    class Interrupted:
        id = "3f9a61c02b7d"
        state = JobState.PAUSED

        def wait(self) -> None:
            raise KeyboardInterrupt

        def pause(self) -> Interrupted:
            return self

    job: Any = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        finish(job, ProgressMeter("copying"), store)
    assert f"anabranch --store {shown} job resume 3f9a61c02b7d\n" in capsys.readouterr().err
