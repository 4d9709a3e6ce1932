"""Transactions: events for one or several streams that become visible together, or never.

What a transaction writes is staged (`anabranch.streams.stage`), and its commit publishes all of it in one transaction of
the catalog, which also changes the transaction's row. So the row alone decides: what it calls committed is there, and
what it does not is not. `row` keeps it, `kept` keeps what was flushed, `transaction` and `writer` are what users hold,
`sweep` ends the ones whose owner went away.
"""
