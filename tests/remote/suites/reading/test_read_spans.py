"""Reading the spans of a segment, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(suite("tests.store.log.test_read_spans"))
