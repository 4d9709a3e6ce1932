"""Historical readers: what lies between two cuts, as ranges of segments that can be read in any order, anywhere.

`ranges` names them and reads one; `cache` keeps what was fetched, for all readers of a store; `prefetch` reads several at
once, ahead of its consumer, and hands them on in their order.
"""
