"""Who calls a broker, what they may do, and how much of it."""
