"""Templates of queries as resources."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from anabranch.deployments.templates.template import QueryTemplate
from anabranch.server.http.body import read_body, sql_text
from anabranch.server.http.calls import verb_result
from anabranch.server.http.front import HttpCall
from anabranch.server.http.queries.resources import named
from anabranch.server.http.resources import json_response, list_page, time_text


async def list_templates(call: HttpCall) -> Response:
    """The templates of queries. They are in name order."""
    return await list_page(call, "templates.list", (), template_json, lambda template: template.name)


async def get_template(call: HttpCall) -> Response:
    """One template."""
    return json_response(template_json(await verb_result(call, "templates.get", named(call))))


async def put_template(call: HttpCall) -> Response:
    """Save a template, or change it. The body is its SQL."""
    text = sql_text(await read_body(call.request.receive, call.request.scope["headers"]), json_too=False)
    return json_response(template_json(await verb_result(call, "templates.save", {**named(call), "text": text})))


async def remove_template(call: HttpCall) -> Response:
    """Remove a template that was saved."""
    await verb_result(call, "templates.remove", named(call))
    return Response(status_code=204)


def template_json(template: QueryTemplate) -> dict[str, Any]:
    """A template as a resource."""
    return {
        "name": template.name,
        "description": template.description,
        "parameters": [asdict(parameter) for parameter in template.parameters],
        "sql": template.text,
        "saved_at": time_text(template.saved_at),
    }
