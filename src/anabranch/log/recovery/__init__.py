"""Manifests, backups, and rebuilding catalogs from them."""
