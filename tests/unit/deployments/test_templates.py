"""The templates that come with the package: what is listed of them is what the parser of statements finds."""

from __future__ import annotations

import pytest

from anabranch.core.sql_parameters import declarations
from anabranch.deployments.templates.template import packaged, to_template

VALUES = {"STREAM": "iot/{name}", "COLUMN": "{name}", "DOUBLE": "1"}


def test_there_are_templates() -> None:
    assert list(packaged()) == [
        *("count_per_window", "deduplicate", "enrich", "rollup", "sessions", "threshold_alert", "top_k"),
    ]


@pytest.mark.parametrize("name", packaged())
def test_its_parameters_are_those_that_its_statements_declare(name: str) -> None:
    template = packaged()[name]
    assert [(each.name, each.type, each.default) for each in template.parameters] == [
        (each.name, each.kind, each.default) for each in declarations(template.text)
    ]
    assert template.description.endswith(".") and template.saved_at is None
    assert all(parameter.meaning for parameter in template.parameters)
    assert {"source", "target", "time"} <= {parameter.name for parameter in template.parameters}


def test_what_is_said_of_a_text_that_says_nothing() -> None:
    template = to_template("t", "CREATE STREAM a.b AS SELECT 1 FROM STREAM a.c")
    assert (template.description, template.parameters) == ("", ())


def test_parameters_are_found_as_they_are_written() -> None:
    text = "-- One\n--two.\n\n-- three\n declare  parameter a int default -5 ;\nDECLARE PARAMETER b STRING DEFAULT 'x y'; -- of b\n"
    template = to_template("t", text + "DECLARE PARAMETER c STREAM;")
    assert template.description == "One two."
    assert [(each.name, each.type, each.default, each.meaning) for each in template.parameters] == [
        ("a", "INT", "-5", ""),
        ("b", "STRING", "x y", "of b"),
        ("c", "STREAM", None, ""),
    ]
