"""Retention: policies, the plan of what a policy removes, how policies are stored and applied."""
