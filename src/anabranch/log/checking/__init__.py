"""Checking a store and repairing what can be repaired safely."""
