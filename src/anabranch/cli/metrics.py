"""`anabranch metrics`: lags and watermarks for a monitoring system."""

from __future__ import annotations

from anabranch.cli.options import JsonOption, StoreOption, new_app, open_store
from anabranch.cli.output import print_json

app = new_app()


@app.command()
def metrics(as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Print what reader groups have still to read and how watermarks stand, in the text format of Prometheus.

    Examples:

      anabranch metrics
      anabranch metrics > /var/lib/node_exporter/anabranch.prom      # from cron, for its textfile collector
    """
    from anabranch.export.metrics import exposition, samples

    with open_store(store) as opened:
        if as_json:
            print_json([{"metric": each.metric, **dict(each.labels), "value": each.value} for each in samples(opened)])
        else:
            print(exposition(opened), end="")
