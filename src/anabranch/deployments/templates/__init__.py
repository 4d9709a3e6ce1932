"""Templates of queries: statements with parameters for what people need again and again.

Those that come with the package are the files `NAME.sql` here. Others are saved in a store.
"""
