"""One Spark session for all tests of this folder, since starting Java takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.s3_server import ensure_credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from anabranch.spark import session

    # Java and Python's workers have their credentials from the environment in which Spark is started.
    ensure_credentials()
    # A place in S3, which nobody looks at yet: so the session knows `s3a://`, where Maven Central can be reached.
    running = session(name="tests", checkpoints="s3://nowhere")
    yield running
    running.stop()


@pytest.fixture
def s3_spark(spark: SparkSession) -> SparkSession:
    """The session, for tests of what it does by itself in S3."""
    from anabranch.spark.session.spark_access import configure_access

    missing = configure_access(spark, "s3://nowhere")
    assert missing is None, missing
    return spark
