"""The templates of a store, as methods of the store."""

from __future__ import annotations

import builtins
import hashlib

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.catalog.state.query_version import QUERY_TEMPLATE, SavedTemplate
from anabranch.core.display import Displayed
from anabranch.deployments.templates.template import QueryTemplate, packaged, to_template
from anabranch.deployments.versions import check_statements
from anabranch.errors import InvalidArgument, TemplateNotFound
from anabranch.model.ids import Micros
from anabranch.model.names import check_plain_name
from anabranch.streams.change import Changes
from anabranch.streams.requests import Result


class Templates(Displayed):
    """Templates of queries: those that come with the package, and those that were saved in the store. A query is deployed with
    the text of one, and does not change with it:

        store.queries.deploy("counts", store.templates.get("count_per_window").text, parameters={"source": "iot/sensors", …})
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._catalog = changes.catalog

    def list(self) -> builtins.list[QueryTemplate]:
        """All templates, by name."""
        with self._catalog.reading() as txn:
            saved = {name: to_template(name, row.text, row.saved_at) for name, row in txn.states(QUERY_TEMPLATE)}
        return [template for _, template in sorted({**saved, **packaged()}.items())]

    def get(self, name: str) -> QueryTemplate:
        """One template. Raises TemplateNotFound."""
        if name in packaged():
            return packaged()[name]
        with self._catalog.reading() as txn:
            row = txn.state(QUERY_TEMPLATE, name)
        if row is None:
            raise TemplateNotFound(name)
        return to_template(name, row.text, row.saved_at)

    def save(self, name: str, text: str, *, request: str | None = None) -> QueryTemplate:
        """Save a template, or change it. Its statements are checked when a query is deployed with them. Raises InvalidArgument,
        also for the name of one that comes with the package, TooLarge."""
        check_plain_name(name, "template")
        if name in packaged():
            raise InvalidArgument(f"'{name}' is a template that comes with the package: choose another name")
        check_statements(text, f"the text of template '{name}'")

        def change(txn: Writing, now: Micros) -> Result:
            if txn.state(QUERY_TEMPLATE, name) is None and len(txn.states(QUERY_TEMPLATE)) >= limits.TEMPLATES_MAX:
                raise InvalidArgument(f"the store has {limits.TEMPLATES_MAX} templates, its limit")
            txn.put_state(QUERY_TEMPLATE, name, SavedTemplate(name, text, now))
            return {}

        self._changes.apply(f"save template {name} {hashlib.sha256(text.encode()).hexdigest()}", request, change)
        return self.get(name)

    def remove(self, name: str, *, request: str | None = None) -> None:
        """Remove a saved template. Queries that were deployed with it stay. Raises TemplateNotFound; InvalidArgument for one
        that comes with the package."""
        if name in packaged():
            raise InvalidArgument(f"'{name}' is a template that comes with the package: it can't be removed")

        def change(txn: Writing, now: Micros) -> Result:
            if txn.state(QUERY_TEMPLATE, name) is None:
                raise TemplateNotFound(name)
            txn.drop_state(QUERY_TEMPLATE, name)
            return {}

        self._changes.apply(f"remove template {name}", request, change)
