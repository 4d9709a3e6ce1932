"""Benchmarks: what the store costs, compared with the best this machine can do. One figure per file; its floor or
peer is measured in the same run, alternating with it. Nothing here is part of the installed package."""
