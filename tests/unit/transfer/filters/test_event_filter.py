"""A filter selects the same events on every machine."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
from datetime import UTC, datetime
import pyarrow as pa
from anabranch.model.ids import SegmentId
from anabranch.model.schema import StreamSchema
from anabranch.transfer.filters.event_filter import EventFilter

columns = pa.schema([("seen", pa.timestamp("us", "UTC"))])
times = [datetime(2026, 1, 31, 23, 59, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC)]
batch = pa.record_batch([pa.array(times, columns.field("seen").type)], schema=columns)
offsets = pa.array([0, 1, 2], pa.int64())
for where in ["seen >= TIMESTAMP '2026-02-01' AND seen < DATE '2026-02-02'", "day(seen) = 1"]:
    found = EventFilter(where, StreamSchema.typed(columns, None, "seen"))
    print(found.matching(SegmentId(0, 0), batch, offsets, batch.column(0)).tolist())
"""


def test_times_in_a_condition_are_utc_whatever_the_time_zone_of_the_machine() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["[1]", "[1]"], done.stderr
