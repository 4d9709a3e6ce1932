"""`anabranch metrics`: lags, watermarks and upkeep failures for a monitoring system."""

from __future__ import annotations

from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import print_json, put_text


def metrics(as_json: bool = JSON_OPTION) -> None:
    """Print the lag of reader groups and pipelines, the state of watermarks, the store's size, and failures of upkeep.

    In the text format of Prometheus.

    Examples:

      anabranch metrics
      anabranch metrics > /var/lib/node_exporter/anabranch.prom      # from cron, for its textfile collector
    """
    from anabranch.export.metrics import exposition, samples

    with open_store() as opened:
        if as_json:
            print_json([{"metric": each.metric, **dict(each.labels), "value": each.value} for each in samples(opened)])
        else:
            put_text(exposition(opened), end="")
