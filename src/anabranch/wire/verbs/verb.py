"""What a verb is: a method of the store that a client of a broker may call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Final, NamedTuple, cast

from anabranch.deployments.api import DeployedQueries
from anabranch.deployments.templates.api import Templates
from anabranch.modules.api import Modules
from anabranch.store.archives import Archives
from anabranch.store.facade import Store
from anabranch.store.groups import Groups
from anabranch.store.notifications import StoreNotifications
from anabranch.store.policies import StorePolicies
from anabranch.store.producers import Producers
from anabranch.store.scopes import StoreScopes
from anabranch.store.shared_state import SharedState
from anabranch.store.streams import StoreStreams
from anabranch.store.subscribers import StoreSubscribers
from anabranch.store.transactions import Transactions
from anabranch.store.watermarks import StoreWatermarks
from anabranch.streams.algebra.cuts import Cuts
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.lineage.api import Lineage
from anabranch.streams.names.api import Aliases
from anabranch.transfer.jobs.manager import Jobs
from anabranch.wire.hints import hints_of
from anabranch.wire.verbs.needs import Need, Needs

NOUNS: Final[Mapping[str, type]] = {
    "": Store,
    "aliases": Aliases,
    "archives": Archives,
    "cuts": Cuts,
    "ephemeral": Ephemeral,
    "groups": Groups,
    "jobs": Jobs,
    "lineage": Lineage,
    "modules": Modules,
    "notifications": StoreNotifications,
    "policies": StorePolicies,
    "producers": Producers,
    "queries": DeployedQueries,
    "scopes": StoreScopes,
    "shared": SharedState,
    "streams": StoreStreams,
    "subscribers": StoreSubscribers,
    "templates": Templates,
    "transactions": Transactions,
    "watermarks": StoreWatermarks,
}
"""The attributes of a store whose methods are verbs, each with its class; the empty one is the store itself."""

_REPEATABLE: Final = {
    *("check", "collect", "compact", "ephemeral.sweep", "export_manifest", "rescale", "retain", "subscribers.release"),
    *("hold.leave", "hold.renew", "job.cancel", "job.pause", "jobs.confirm", "notifications.forget_listener"),
    *("group.cancel_checkpoint", "group.delete", "group.generate_cut", "group.open", "group.reader_offline"),
    *("bytes.claim", "bytes.truncate_before"),
    *("revisioned.append", "revisioned.open", "revisioned.truncate"),
    *("watermarks.end", "watermarks.idle", "archives.confirm_attachment", "forget_newer", "repair"),
}
"""Verbs without a request id that may be done twice: upkeep, what only sets a state, and appends that are
numbered."""


def arguments_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function but the first."""
    return dict(list(signature(function).parameters.items())[1:])


def summary_of(function: Callable[..., Any]) -> str:
    """The first sentence of a function's documentation, without its full stop."""
    paragraph = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


class Opened(NamedTuple):
    """An object that is opened for each call, such as a reader group, and whose methods and properties are verbs. `open` is
    given the store, and takes arguments of the verb."""

    kind: type
    open: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class StoreVerb:
    """One verb: `streams.copy` is `store.streams.copy`.

    `needs` says what a call must be allowed. `shown` says what a caller must be allowed to see one item of a list; the
    others are left out. A `streaming` verb returns an iterator. `changes` is False for a verb that only reads. `of` is
    the object whose method it is, if that is none of NOUNS. `run`, if given, does it instead of a method: it gets the
    store and the arguments. `sent` makes a result that stays in the broker one that can be sent.
    """

    name: str
    needs: Needs
    streaming: bool = False
    shown: Callable[[Any], Need] | None = None
    changes: bool = True
    of: Opened | None = None
    run: Callable[..., Any] | None = None
    sent: Callable[[Any], Any] | None = None

    @property
    def function(self) -> Callable[..., Any]:
        """What does it, unbound: its first argument is the object, or for `run` the store."""
        if self.run is not None:
            return self.run
        noun, _, method = self.name.rpartition(".")
        found: Any = getattr(NOUNS[noun] if self.of is None else self.of.kind, method)
        return cast(Callable[..., Any], found.fget if isinstance(found, property) else found)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The arguments that it takes, without the object or store."""
        opening = {} if self.of is None else arguments_of(self.of.open)
        return {**opening, **arguments_of(self.function)}

    @property
    def hints(self) -> Mapping[str, Any]:
        """The types of its arguments."""
        opening = {} if self.of is None else hints_of(self.of.open)
        return {**opening, **hints_of(self.function)}

    @property
    def repeatable(self) -> bool:
        """True if a call may be sent again after its answer was lost: it changes nothing, or takes a request id."""
        return not self.changes or "request" in self.parameters or self.name in _REPEATABLE
