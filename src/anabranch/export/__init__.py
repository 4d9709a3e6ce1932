"""Exports data about a store to other systems."""
