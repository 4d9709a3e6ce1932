"""The simulation's clients: each a loop over the real store that draws what to do next.

A client is a function `(arena, store, name)` in a file of its own. It takes turns until all stops:

    def rename(arena: Arena, store: Store, name: str) -> None:
        for _ in arena.turns(store, 8):
            with suppress(*EXPECTED):
                ...
                arena.done["rename"] += 1

and one line in a cast (`casts.py`) has it take part: a process is made of one of the casts, its clients run side by
side, and may be killed at any call of a port. So a client keeps nothing that it must do in the end:

- events go through a ledger of `arena.ledgers`: `attempt` before they are handed over, then `acked`, `refused` or
  `unknown`. The ledger judges the stream in the end. A new stream takes part by `arena.new_stream`;
- what else must be so in the end is a promise, `arena.promises[what] = partial(holds, …)`, which is asked in a fresh
  process. What must be so at once is a line in `arena.violations`;
- all chance is drawn from `arena.rng` and all time passes through `store.runtime`, in an order that is the same whatever
  Python's hashes are: iterate over nothing that is a set. Then one seed gives one run;
- `EXPECTED` are the errors that may come of other clients and of a failing network. Any other ends the run as a failure;
- a wound that the client is there to find is planted in `testing.wounds`, with `told`, what is said of it.
"""

from anabranch.testing.clients.arena import EXPECTED, KEYS, Arena, Client, Promise, checked, judged, kept, named, stored
from anabranch.testing.clients.casts import CASTS, HARVEST, HOLDERS, STORM, Cast

__all__ = [
    "CASTS",
    "EXPECTED",
    "HARVEST",
    "HOLDERS",
    "KEYS",
    "STORM",
    "Arena",
    "Cast",
    "Client",
    "Promise",
    "checked",
    "judged",
    "kept",
    "named",
    "stored",
]
