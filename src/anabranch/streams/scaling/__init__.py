"""Scaling by load: policies, the plan of splits and merges, how policies are stored and applied."""
