"""Arguments of another type, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(suite("tests.store.streams.test_arguments"))
