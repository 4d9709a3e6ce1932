"""The simulation's clients: each a loop over the real store that draws what to do next.

A client is a function `(arena, store, name)` in a file of its own. It takes turns until the run stops:

    def rename(arena: Arena, store: Store, name: str) -> None:
        for _ in arena.turns(store, 8):
            with suppress(*EXPECTED):
                ...
                arena.done["rename"] += 1

One line in a mix (`mixes.py`), which has a name in `BY_NAME`, adds it to the simulation. A process runs the clients of
one mix side by side, and may be killed at any call of a port. So a client must not depend on cleaning up at its end:

- Events are recorded in a ledger of `arena.ledgers`: `attempt` before they are written, then `acked`, `refused` or
  `unknown`. The ledger judges the stream at the end. A new stream is registered by `arena.new_stream`.
- A change with a request id goes through `arena.ask`. It repeats the request if the answer was lost, sometimes for no
  reason, and at the end if the process died in between. What a stream takes over from another is a `Joint`
  (`taking.py`), which is judged at the end.
- Anything else that must hold at the end is a promise, `arena.promises[what] = partial(holds, …)`, which is checked in
  a fresh process. What must hold at once and does not is added to `arena.violations`.
- All randomness comes from `arena.rng` and all waiting goes through `store.runtime`, in an order that does not depend
  on Python's hashes: never iterate over a set. Then one seed gives one run.
- `EXPECTED` are the errors that other clients and a failing network may cause. Any other ends the run as a failure.
- A planted fault that the client should find is defined in `tests.simulation.planted_faults`, with `reports`, the expected
  messages.
"""

from tests.simulation.clients.arena import EXPECTED, KEYS, Arena, Asked, Client, Promise, named
from tests.simulation.clients.judgement import checked, held, judge, stored
from tests.simulation.clients.mixes import (
    ALGEBRA,
    ALIASES,
    ALL,
    APPENDS,
    BASIC,
    BY_NAME,
    BYTE_STREAMS,
    CLOCKS,
    COLLECTION,
    EPHEMERAL_STREAMS,
    GROUPS,
    MIXES,
    NOTIFICATIONS,
    PRODUCERS,
    RECOVERY,
    RETENTION,
    SUBSCRIBERS,
    TOGETHER,
    TRANSACTIONS,
    UPKEEP,
    WATERMARKS,
    WRITES_AND_SCALES,
    ClientMix,
)

__all__ = [
    "ALGEBRA",
    "ALIASES",
    "ALL",
    "APPENDS",
    "BASIC",
    "BYTE_STREAMS",
    "BY_NAME",
    "CLOCKS",
    "COLLECTION",
    "EPHEMERAL_STREAMS",
    "EXPECTED",
    "GROUPS",
    "KEYS",
    "MIXES",
    "NOTIFICATIONS",
    "PRODUCERS",
    "RECOVERY",
    "RETENTION",
    "SUBSCRIBERS",
    "TOGETHER",
    "TRANSACTIONS",
    "UPKEEP",
    "WATERMARKS",
    "WRITES_AND_SCALES",
    "Arena",
    "Asked",
    "Client",
    "ClientMix",
    "Promise",
    "checked",
    "held",
    "judge",
    "named",
    "stored",
]
