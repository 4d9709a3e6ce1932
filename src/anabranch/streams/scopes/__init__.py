"""Scopes: create, list, copy, rename, delete."""
