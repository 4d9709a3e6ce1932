"""Templates of queries, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(suite("tests.store.deployments.test_templates"))
