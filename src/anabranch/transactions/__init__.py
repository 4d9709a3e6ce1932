"""Transactions: events for one or several streams that become visible together, or never.

The events of a transaction are staged (`anabranch.writing.staging`). Its commit publishes them in one transaction of the
catalog, which also changes the transaction's row. So the row alone decides whether the events are visible. `record`
stores the row, `flushed` the flushed events; `transaction` and `writer` are the objects that users hold; `sweep` aborts
transactions whose lease has expired.
"""
