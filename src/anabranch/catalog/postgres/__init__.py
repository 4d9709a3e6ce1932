"""The catalog on PostgreSQL, for any number of processes on any number of machines. Needs the extra `postgres`."""
