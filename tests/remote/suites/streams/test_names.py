"""Names, aliases and scopes, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.names.test_names",
        without={
            "test_deleting_a_scope_resumes": "stops in a callback, which a broker does not wait for",
        },
    )
)
