"""The simulation's clients: each a loop over the real store that draws what to do next.

A client is a function `(arena, store, name)` in a file of its own. It takes turns until all stops:

    def rename(arena: Arena, store: Store, name: str) -> None:
        for _ in arena.turns(store, 8):
            with suppress(*EXPECTED):
                ...
                arena.done["rename"] += 1

and one line in a cast (`casts.py`), which has a name in `BY_NAME`, has it take part: a process is made of one of the casts, its clients run side by
side, and may be killed at any call of a port. So a client keeps nothing that it must do in the end:

- events go through a ledger of `arena.ledgers`: `attempt` before they are handed over, then `acked`, `refused` or
  `unknown`. The ledger judges the stream in the end. A new stream takes part by `arena.new_stream`;
- a change that is asked for under a request id goes through `arena.ask`: it asks again where the answer was lost, once
  more for no reason, and in the end if the process died in between. What a stream took over from another is a `Joint`
  (`taking.py`), which is judged in the end;
- what else must be so in the end is a promise, `arena.promises[what] = partial(holds, …)`, which is asked in a fresh
  process. What must be so at once is a line in `arena.violations`;
- all chance is drawn from `arena.rng` and all time passes through `store.runtime`, in an order that is the same whatever
  Python's hashes are: iterate over nothing that is a set. Then one seed gives one run;
- `EXPECTED` are the errors that may come of other clients and of a failing network. Any other ends the run as a failure;
- a wound that the client is there to find is planted in `testing.wounds`, with `told`, what is said of it.
"""

from anabranch.testing.clients.arena import EXPECTED, KEYS, Arena, Asked, Client, Promise, named
from anabranch.testing.clients.casts import (
    ALGEBRA,
    ALL,
    BASIC,
    BY_NAME,
    CASTS,
    GROWTH,
    HARVEST,
    HOLDERS,
    KEEPERS,
    LINKS,
    LISTENERS,
    SAVERS,
    SCRIBES,
    SHARERS,
    STORM,
    TIMEKEEPERS,
    TOGETHER,
    TRANSACTORS,
    UPKEEPERS,
    Cast,
)
from anabranch.testing.clients.judgement import checked, held, judge, stored

__all__ = [
    "ALGEBRA",
    "ALL",
    "BASIC",
    "BY_NAME",
    "CASTS",
    "EXPECTED",
    "GROWTH",
    "HARVEST",
    "HOLDERS",
    "KEEPERS",
    "KEYS",
    "LINKS",
    "LISTENERS",
    "SAVERS",
    "SCRIBES",
    "SHARERS",
    "STORM",
    "TIMEKEEPERS",
    "TOGETHER",
    "TRANSACTORS",
    "UPKEEPERS",
    "Arena",
    "Asked",
    "Cast",
    "Client",
    "Promise",
    "checked",
    "held",
    "judge",
    "named",
    "stored",
]
