"""Deployed queries as resources, and their results as they come."""
