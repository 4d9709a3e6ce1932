"""Reading streams, alone and together: readers, reader groups and their shared state.

Code here writes only entries of revisioned streams; anything else that is written with them is passed in by the store.
"""
