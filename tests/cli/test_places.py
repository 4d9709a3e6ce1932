"""Cuts, distances, truncation and retention from the command line."""

from __future__ import annotations

from tests.cli.kit import Line


def test_cut_prints_a_place_that_other_verbs_take(sensors: Line) -> None:
    one = sensors("cut", "iot/sensors", "--events", 1).out.strip()
    two = sensors("cut", "iot/sensors", "--after", one, "--events", 1, "--json").json
    assert (two["events_before"], two["events_behind"]) == (2, 1)
    assert sensors("cut", "iot/sensors", "--at", two["cut"]).out.strip() == two["cut"]
    assert sensors("read", "iot/sensors", "--from", one, "--to", two["cut"]).out.count("\n") == 1
    weight = sensors("distance", "iot/sensors", "--json").json["bytes"]
    assert sensors("cut", "iot/sensors", "--bytes", weight, "--json").json["events_behind"] == 0
    assert sensors("cut", "iot/sensors", "--bytes", weight - 1, "--at-most", "--json").json["events_behind"] == 1


def test_cut_refuses_what_it_can_not_tell(sensors: Line) -> None:
    assert "pass exactly one of" in sensors.refused("cut", "iot/sensors")
    assert "pass exactly one of" in sensors.refused("cut", "iot/sensors", "--events", 1, "--bytes", "1kB")
    assert "names the position itself" in sensors.refused("cut", "iot/sensors", "--at", "head", "--events", 1)
    assert "500MB" in sensors.refused("cut", "iot/sensors", "--bytes", "much")


def test_distance_reports_events_bytes_and_segments(sensors: Line) -> None:
    told = sensors("distance", "iot/sensors", "--json").json
    assert told["events"] == 3
    assert sum(part["bytes"] for part in told["ranges"]) == told["bytes"] > 0
    assert "3 events" in sensors("distance", "iot/sensors").out
    middle = sensors("cut", "iot/sensors", "--events", 2).out.strip()
    assert sensors("distance", "iot/sensors", "--from", middle, "--json").json["events"] == 1
    assert "is before the start" in sensors.refused("distance", "iot/sensors", "--from", "tail", "--to", middle)


def test_places_are_compared_and_looked_for_in_ranges(sensors: Line) -> None:
    one, two = (sensors("cut", "iot/sensors", "--events", n).out.strip() for n in (1, 2))
    orders = [sensors("compare", "iot/sensors", *pair).out.strip() for pair in ((one, two), (two, one), (two, two))]
    assert orders == ["before", "after", "same"]
    assert sensors("compare", "iot/sensors", "--json", "head", two).json["order"] == "before"
    pointers = [row["_pointer"] for row in sensors("read", "iot/sensors", "--meta", "--format", "jsonl").rows]
    for pointer, (code, word) in zip(pointers, [(1, "no"), (0, "yes"), (1, "no")], strict=True):
        assert sensors("contains", "iot/sensors", pointer, "--from", one, "--to", two, code=code).out.strip() == word
    assert sensors("contains", f"iot/sensors[{one},tail]", two, "--json").json == {"contains": True}
    assert sensors("contains", f"iot/sensors[{two},tail]", one, code=1).out == "no\n"
    assert "is not a stream cut" in sensors.refused("compare", "iot/sensors", one, f"{two}@")


def test_times_in_places_are_those_of_appending_or_the_events_own(sensors: Line) -> None:
    second = "2026-01-01T00:00:01Z"  # the second event's own time; all were appended long after
    by = ("--by", "event")
    assert sensors("distance", "iot/sensors", "--to", second, "--json").json["events"] == 0
    assert sensors("distance", "iot/sensors", "--to", second, *by, "--json").json["events"] == 1
    assert sensors("cut", "iot/sensors", "--at", second, *by, "--json").json["events_before"] == 1
    assert sensors("copy", f"iot/sensors[{second},]", "iot/late", *by, "--json").json["events"] == 2
    assert sensors("append", f"iot/sensors[,{second}]", "iot/late", *by, "--json").json["appended"] == 1
    halves = (f"iot/sensors[,{second}]", f"iot/sensors[{second},]")
    assert sensors("stitch", *halves, "--into", "iot/whole", *by, "--json").json["events"] == 3
    assert sensors("stitch", *halves, "--into", "iot/other", *by, "--deduplicate", "at", "--json").json["events"] == 3
    assert sensors("stream", "truncate", "iot/whole", "--at", second, *by, "--yes")
    assert sensors("stream", "show", "iot/whole", "--json").json["events"] == 2
    assert "--by append or --by event, got 'age'" in sensors.refused("copy", "iot/sensors", "iot/x", "--by", "age")


def test_truncate_removes_so_many_events_or_bytes(sensors: Line) -> None:
    assert "pass exactly one of" in sensors.refused("stream", "truncate", "iot/sensors", "--yes")
    sensors("stream", "truncate", "iot/sensors", "--events", 1, "--yes")
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 2
    sensors("stream", "truncate", "iot/sensors", "--bytes", "1B", "--yes")  # never more than was said
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 2
    assert sensors("stream", "truncate", "iot/sensors", "--bytes", "1GB", "--yes", "--json").json["removed"] == 2
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 0


def test_retention_is_set_shown_carried_out_and_taken_back(sensors: Line) -> None:
    assert sensors("stream", "retain", "iot/sensors").out.strip() == "kept forever"
    kept = sensors(
        "stream", "retain", "iot/sensors", "--for", "7d", "--bytes", "10GB", "--at-least-for", "12h", "--yes"
    )
    assert kept.out.strip() == "kept for 7d and of that the newest 10.0 GB, at least for 12h"
    assert "for 7d" in sensors("stream", "show", "iot/sensors").out
    assert sensors("stream", "show", "iot/sensors", "--json").json["retention"]["size"] == 10**10
    assert sensors("stream", "retain", "iot/sensors", "--now", "--json").json["removed"]["events"] == 0
    told = sensors("stream", "retain", "iot/sensors", "--for", "0s", "--now", "--yes", "--json").json
    assert told["removed"]["events"] == 3
    assert sensors("stream", "retain", "iot/sensors", "--forever").out.strip() == "kept forever"
    assert "not both" in sensors.refused("stream", "retain", "iot/sensors", "--forever", "--for", "1d")
    assert "not a duration" in sensors.refused("stream", "retain", "iot/sensors", "--for", "long")
    assert "pass one of these too" in sensors.refused("stream", "retain", "iot/sensors", "--at-least-bytes", "1GB")


def test_a_stream_is_created_with_its_policy(sensors: Line) -> None:
    sensors("stream", "create", "iot/short", "--retain-for", "1h", "--retain-bytes", "1MB")
    assert sensors("stream", "retain", "iot/short").out.strip() == "kept for 1h and of that the newest 1.0 MB"
    assert "not a size" in sensors.refused("stream", "create", "iot/more", "--retain-bytes", "lots")
    assert "iot/more" not in sensors("stream", "list").out


def test_retain_carries_out_the_policies_of_all_streams(sensors: Line) -> None:
    assert sensors("retain", "--json").json["streams"] == 0
    sensors("stream", "retain", "iot/sensors", "--for", "0s", "--yes")
    told = sensors("retain", "--json").json
    assert (told["streams"], told["truncated"], told["events"]) == (1, 1, 3)
    assert "0 events (0 B) of 0 streams removed" in sensors("retain", "iot/sensors").err


def test_diff_and_lineage_tell_what_streams_have_in_common(sensors: Line) -> None:
    sensors("copy", "iot/sensors", "iot/again")
    sensors("stream", "truncate", "iot/again", "--events", 1, "--yes")
    told = sensors("diff", "iot/sensors", "iot/again", "--json").json
    assert (told["shared"]["events"], told["only_first"]["events"], told["only_second"]["events"]) == (2, 1, 0)
    assert "2 events" in sensors("diff", "iot/sensors", "iot/again").out
    sensors("rename", "iot/sensors", "iot/thermometers")
    (origin,) = sensors("lineage", "iot/again", "--json").json
    assert (origin["how"], origin["parts"][0]["name"]) == ("copied", "iot/sensors")
    assert origin["parts"][0]["name_now"] == "iot/thermometers"
    assert "iot/thermometers now" in sensors("lineage", "iot/again").out
    assert "nothing but what was written" in sensors("lineage", "iot/thermometers").err
