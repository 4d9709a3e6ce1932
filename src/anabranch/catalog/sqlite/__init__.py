"""The catalog on SQLite: one file shared by many processes, or in memory for one process."""
