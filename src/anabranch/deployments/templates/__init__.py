"""Templates of queries: statements with parameters, for queries that are needed often.

Those that come with the package are the files `NAME.sql` here. Others are saved in a store.
"""
