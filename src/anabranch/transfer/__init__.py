"""Moving bytes: jobs between stores, archives, imports and attached files."""
