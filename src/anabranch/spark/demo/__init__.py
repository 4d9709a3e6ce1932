"""The main job, to be watched: real events flow into a stream, Spark aggregates them in windows, and the result is proved.

`collector` and `replay` bring events, `host.sql` and `file.sql` aggregate them, `screen` shows them, and `proof` counts
again without Spark. `run` puts them together.
"""

from __future__ import annotations

from anabranch.spark.demo.main import STORE, run

__all__ = ["STORE", "run"]
