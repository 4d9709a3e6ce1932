"""Reading streams: single readers now; reader groups, checkpoints and watermarks belong here too. Nothing is written
to logs from here."""
