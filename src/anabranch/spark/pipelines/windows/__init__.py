"""Windows that pipelines compute themselves, because Spark's streaming has none of their kind: windows of a number of
events. A stateful operator keeps the events of open windows, and passes those of windows that are due to the statement's
own aggregation, which runs as a batch query over them."""
