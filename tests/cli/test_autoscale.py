"""`anabranch stream autoscale`: a policy is said, shown and taken back."""

from __future__ import annotations

from tests.cli.kit import Line


def test_a_policy_is_said_shown_and_taken_back(line: Line) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/clicks", "--events-per-second", "1000", "--minimum", "2")
    assert line("stream", "show", "iot/clicks", "--json").json["scaling"]["minimum"] == 2
    assert "by load: 1,000 events a second" in line("stream", "show", "iot/clicks").out
    told = line(
        "stream", "autoscale", "iot/clicks", "--bytes-per-second", "2MB", "--minimum", "3", "--now", "--json"
    ).json
    assert told == {
        "name": "iot/clicks",
        "scaling": {"unit": "bytes", "target": 2_000_000, "factor": 2, "minimum": 3},
        "segments": 3,
        "streams_scaled": 1,
    }
    assert "scaled by hand" in line("stream", "autoscale", "iot/clicks", "--off").err
    assert line("stream", "show", "iot/clicks", "--json").json["scaling"] is None


def test_options_that_contradict_each_other_are_refused(line: Line) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/raw")
    for options, said in (
        (("--off", "--events-per-second", "5"), "--off"),
        (("--events-per-second", "5", "--bytes-per-second", "5"), "not both"),
        (("--factor", "3"), "require"),
        (("--events-per-second", "0"), "above 0"),
        (("--bytes-per-second", "turtles"), "turtles"),
    ):
        assert said in line.refused("stream", "autoscale", "iot/raw", *options)
    assert "--minimum" in line.refused("stream", "create", "iot/b", "--segments", "3", "--events-per-second", "5")
