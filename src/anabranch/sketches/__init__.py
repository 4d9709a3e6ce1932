"""Sketches as bytes, in the layouts that Spark's SQL functions write: small summaries that are merged later.

One module a kind, each with the same verbs: `build` makes a sketch of values, `union` merges sketches, the others read it.

    hll, theta      distinct values; theta also has intersections and differences
    kll             quantiles and ranks of numbers
    top_k           the most frequent values
    count_min       how often a value occurs
    bloom           whether a value occurred

The first four need the extra `sketches`. The folder `sql` has them as functions of SQL.
"""
