"""One Spark session for all tests of this folder: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from anabranch.spark import session

    running = session(name="tests")
    yield running
    running.stop()
