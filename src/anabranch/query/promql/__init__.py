"""PromQL over streams: a field of a stream is a metric, its text columns are labels.

`parser` reads a query; `evaluate` computes it on a grid of times. DuckDB selects the samples of each selector, in the process
where all queries of a broker run; numpy computes on whole columns what follows.
"""
