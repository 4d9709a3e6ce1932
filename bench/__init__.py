"""What the store costs, beside what this machine could do at best: one figure a file, its floor or peer measured in the
same run, taking turns with it. Nothing here is part of the installed package."""
