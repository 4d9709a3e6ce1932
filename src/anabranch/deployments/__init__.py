"""Deployed queries as state of the store: their versions, what is wanted of them, and which host runs them.

Nothing here runs a query. Hosts are in `anabranch.spark.queries`.
"""
