"""The command line: one file per noun. Nothing heavy is imported before a verb that needs it runs, so that listing
streams starts as fast as the shell allows."""
