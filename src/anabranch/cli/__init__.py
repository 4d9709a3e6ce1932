"""The command line: one file per noun. Heavy modules are imported only by the verb that needs them, so that listing
streams starts as fast as the shell allows."""
