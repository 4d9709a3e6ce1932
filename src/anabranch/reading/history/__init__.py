"""Historical readers: what lies between two cuts, as segment ranges that can be read in any order, anywhere.

`ranges` lists the ranges and reads one; `cache` keeps fetched bytes, for all readers of a store; `prefetch` reads
several ranges in parallel, ahead of its consumer, and returns them in order.
"""
