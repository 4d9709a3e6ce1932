"""The verbs that a broker serves: one table, for Flight, gRPC, HTTP and the remote client."""

from __future__ import annotations

from anabranch.wire.verbs.call import VerbCall, call, checked_arguments
from anabranch.wire.verbs.needs import Need, Operation
from anabranch.wire.verbs.table import QUERY, VERBS, find_verb
from anabranch.wire.verbs.transactional import require_together
from anabranch.wire.verbs.verb import NOUNS, StoreVerb, summary_of

__all__ = [
    "NOUNS",
    "QUERY",
    "VERBS",
    "Need",
    "Operation",
    "StoreVerb",
    "VerbCall",
    "call",
    "checked_arguments",
    "find_verb",
    "require_together",
    "summary_of",
]
