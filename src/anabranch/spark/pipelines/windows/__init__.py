"""Windows that pipelines compute themselves, because Spark's streaming has no such windows: windows of a number of events,
and windows with several results. A stateful operator keeps the events of windows, and passes those that are due to the
statement's own aggregation, which runs as a batch query over them."""
