"""The catalog on SQLite: one file, many processes; or in memory, for one."""
