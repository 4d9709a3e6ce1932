"""Ports to the outside world: clock, ids, tasks, settings.

The rest of the store accesses time, randomness and threads only through these ports, so that the simulation can replace
them.
"""
