"""The directory of a store: its scopes, and streams found by their present and former names."""
