"""Jobs: resumable work that moves the bytes of streams, as ranges, in any order.

A job is a row in its target's catalog. It writes to ordinary logs of an ordinary, internal stream, until one
transaction turns that stream into the result. Only `move` moves bytes, and nothing here opens a store: callers pass in
the stores (`JobStore`).
"""
