"""`anabranch stream limit`: a load policy is set, shown and taken back."""

from __future__ import annotations

from tests.cli.kit import Line


def test_a_load_policy_is_set_shown_and_taken_back(line: Line) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/clicks", "--schema", "user:string, weight:double", "--key", "user")
    assert "all appends are accepted" in line("stream", "limit", "iot/clicks").err
    assert "above 1,000 events a second are rejected" in (
        line("stream", "limit", "iot/clicks", "--events-per-second", "1000").err
    )
    found = line("stream", "limit", "iot/clicks", "--bytes-per-second", "2MB", "--sample", "weight", "--json").json
    policy = {"above": "sample", "rate": {"events_per_s": None, "bytes_per_s": 2_000_000}, "weight": "weight"}
    assert found == {"name": "iot/clicks", "load": policy}
    assert line("stream", "show", "iot/clicks", "--json").json["load"] == policy
    assert "above 2.0 MB a second are sampled, weights in 'weight'" in line("stream", "show", "iot/clicks").out
    line("stream", "limit", "iot/clicks", "--off")
    assert line("stream", "show", "iot/clicks", "--json").json["load"] is None


def test_options_of_a_limit_that_contradict_each_other_are_refused(line: Line) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/raw")
    for options, message in (
        (("--off", "--events-per-second", "5"), "--off"),
        (("--sample", "weight"), "requires"),
        (("--events-per-second", "0"), "above 0"),
        (("--events-per-second", "5", "--sample", "weight"), "weights"),
    ):
        assert message in line.refused("stream", "limit", "iot/raw", *options)
