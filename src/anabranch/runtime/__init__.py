"""What the outside world gives: clock, ids, tasks, settings. The rest of the store reaches time, chance and threads
through these ports alone, so that the simulation can stand in for them."""
