"""What Hadoop is told of a bucket, and how Java's client for S3 is had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.blobs.address import parse
from anabranch.errors import StoreUnavailable
from anabranch.spark.session import jars
from anabranch.spark.session.jars import coordinates, ensure_jars
from anabranch.spark.session.s3a import bucket_settings, hadoop_path

PLAIN = {"endpoint.region": "us-east-1", "path.style.access": "true"}
SECURE = {"connection.ssl.enabled": "true"}


@pytest.mark.parametrize(
    ("url", "environment", "told"),
    [
        ("s3://b/p", {}, PLAIN),
        ("s3://b?region=eu-central-1", {"AWS_REGION": "us-west-2"}, PLAIN | {"endpoint.region": "eu-central-1"}),
        ("s3://b", {"AWS_DEFAULT_REGION": "us-west-2"}, PLAIN | {"endpoint.region": "us-west-2"}),
        ("s3://b?endpoint=https://host:9", {}, PLAIN | SECURE | {"endpoint": "https://host:9"}),
        ("s3://b", {"AWS_ENDPOINT_URL": "https://host"}, PLAIN | SECURE | {"endpoint": "https://host"}),
        (
            "s3://b?endpoint=http://host:9&allow_http=true",
            {"AWS_ENDPOINT_URL": "https://other"},
            PLAIN | {"endpoint": "http://host:9", "connection.ssl.enabled": "false"},
        ),
        (
            "s3://b?endpoint=https://b.host&virtual_hosted=true",
            {},
            PLAIN | SECURE | {"endpoint": "https://host", "path.style.access": "false"},
        ),
        (
            "s3://b",
            {"AWS_SKIP_SIGNATURE": "true"},
            PLAIN | {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
        ),
    ],
)
def test_a_bucket_is_addressed_as_the_url_and_the_environment_say(
    url: str, environment: dict[str, str], told: dict[str, str]
) -> None:
    assert bucket_settings(parse(url), environment) == told


def test_keys_are_no_settings() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-key", "AWS_SESSION_TOKEN": "a-token"}
    assert bucket_settings(parse("s3://b"), environment) == PLAIN


def test_hadoop_has_another_name_for_s3_alone() -> None:
    assert hadoop_path("s3://bucket/a") == "s3a://bucket/a"
    assert hadoop_path("/folder/a") == "/folder/a"
    assert hadoop_path("gs://bucket/a") == "gs://bucket/a"


@pytest.mark.slow
def test_a_client_that_cannot_be_fetched_is_reported_and_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:9/nobody")
    with pytest.raises(
        StoreUnavailable, match=r"hadoop-aws [0-9.]+ could not be fetched from Maven Central \(see .*\)"
    ):
        ensure_jars()
    left = [path.name for path in (tmp_path / "anabranch" / "spark-s3").iterdir()]
    assert left == ["fetch.log"]


def test_a_fetch_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "_RETRY", replace(jars._RETRY, pause_s_min=0.0))
    attempts: list[Path] = []

    def ivy(made: Path) -> str:
        attempts.append(made)
        if len(attempts) == 3:
            (made / "jars").mkdir()
            (made / "jars" / "hadoop-aws-1.jar").touch()
        return "one of the jars was not to be had"

    monkeypatch.setattr(jars, "_ivy", ivy)
    assert [jar.name for jar in ensure_jars()] == ["hadoop-aws-1.jar"]
    assert len(attempts) == 3 and len(set(attempts)) == 1  # with what the others have fetched


def test_a_session_of_ones_own_is_told_which_client_matches_its_hadoop() -> None:
    assert coordinates().startswith("org.apache.hadoop:hadoop-aws:3.")
