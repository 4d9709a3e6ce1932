"""Holds appends to the load policies of their streams, below all front ends of a broker."""
