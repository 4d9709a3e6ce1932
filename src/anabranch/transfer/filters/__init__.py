"""Filters of events: conditions in SQL, and which events of a stream they hold for."""
