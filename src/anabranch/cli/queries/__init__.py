"""`anabranch queries`: SQL over streams that is deployed, and run by hosts. Each file has one verb, or a few related
ones."""

from __future__ import annotations

from anabranch.cli.declare import new_app
from anabranch.cli.queries.deploy import deploy
from anabranch.cli.queries.lifecycle import delete, start, stop
from anabranch.cli.queries.listing import list_queries, show, versions
from anabranch.cli.queries.results import logs, results, state
from anabranch.cli.queries.serve import prepare, serve
from anabranch.cli.queries.signatures import sign, trust
from anabranch.cli.queries.templates import remove_template, save_template, templates
from anabranch.cli.queries.top import top
from anabranch.cli.queries.upgrade import rollback, upgrade
from anabranch.cli.queries.validate import validate

app = new_app()

# In the order of the help.
app.command()(serve)
app.command()(deploy)
app.command()(upgrade)
app.command("list")(list_queries)
for verb in (show, top, start, stop, logs, results, state, versions, rollback, delete, validate, templates):
    app.command()(verb)
app.command("save-template")(save_template)
app.command("remove-template")(remove_template)
app.command()(sign)
app.command()(trust)
app.command()(prepare)
