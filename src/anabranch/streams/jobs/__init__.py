"""Jobs: work on streams that moves bytes, in ranges, in any order, and survives whatever stops it.

A job is a row of its target's catalog. What it writes lies in ordinary logs of an ordinary, internal stream until one
transaction turns that into what was asked for. No byte is moved by anything but `move`, and nothing here knows how a
store is opened: sites are handed in.
"""
