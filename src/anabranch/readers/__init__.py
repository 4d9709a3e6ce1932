"""Reading streams, alone and together: readers, reader groups and the state they share. What is written from here are
entries of revisioned streams; whatever else is written with them, the store hands in."""
