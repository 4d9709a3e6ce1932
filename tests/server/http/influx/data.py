"""Points with tags that are missing, fields that are missing, and all types. No two points of `cpu` have the same time, for
the order of those is not defined."""

from __future__ import annotations

import random
from collections.abc import Iterator

BEGIN_S = 1_700_000_000


def lines(seed: int = 7) -> Iterator[str]:
    """The points as lines."""
    chance = random.Random(seed)
    for number, (host, region) in enumerate((("a", "eu"), ("b", "eu"), ("c", "us"), ("d", ""))):
        for step in range(60):
            at = BEGIN_S + step * 10 + chance.choice((0, 3, 6)) + number * 0.5
            fields = []
            if chance.random() < 0.8:
                fields.append(f"value={round(chance.uniform(-50, 100), 2)}")
            if chance.random() < 0.6:
                fields.append(f"count={chance.randint(-5, 20)}i")
            if chance.random() < 0.4:
                fields.append(f'msg="m{chance.randint(0, 3)}"')
            if chance.random() < 0.4:
                fields.append(f"ok={chance.choice('tf')}")
            if fields and chance.random() < 0.7:
                tags = f"cpu,host={host}" + (f",region={region}" if region else "")
                yield f"{tags} {','.join(fields)} {int(at * 1000)}000000"
    for number, host in enumerate("ab"):
        for step in range(30):
            at = BEGIN_S + step * 20 + number
            yield f"mem,host={host} used={step * 3 + number}i,free={100 - step * 1.5} {at}000000000"
