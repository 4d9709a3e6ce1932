"""Reader groups: several readers, in one process or many, that share streams between them. They coordinate only through
the group's shared state (`core.group`), which lies on a revisioned stream."""
