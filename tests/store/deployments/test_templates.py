"""Templates of queries, saved in a store beside those that come with the package."""

from __future__ import annotations

import pytest

from anabranch import limits
from anabranch.errors import InvalidArgument, TemplateNotFound, TooLarge
from anabranch.store import Store

TEXT = "-- Hot ones.\nDECLARE PARAMETER above DOUBLE DEFAULT 30; -- in degrees\nCREATE STREAM a.b AS SELECT 1"


def test_templates_are_saved_listed_changed_and_removed(anywhere: Store) -> None:
    templates = anywhere.templates
    before = [template.name for template in templates.list()]
    assert "rollup" in before and templates.get("rollup").saved_at is None
    saved = templates.save("hot", TEXT)
    assert (saved.name, saved.description, saved.text) == ("hot", "Hot ones.", TEXT)
    assert [(each.name, each.default, each.meaning) for each in saved.parameters] == [("above", "30", "in degrees")]
    assert templates.get("hot") == saved and saved.saved_at is not None
    assert [template.name for template in templates.list()] == sorted([*before, "hot"])
    anywhere.queries.deploy("q", templates.get("hot").text, parameters={"above": "31"})
    assert templates.save("hot", "other").text == "other"
    templates.remove("hot")
    assert anywhere.queries.versions("q")[0].text == TEXT
    for verb in (templates.get, templates.remove):
        with pytest.raises(TemplateNotFound, match="template 'hot' not found"):
            verb("hot")


def test_a_change_is_made_once_for_a_request_id(anywhere: Store) -> None:
    anywhere.templates.save("hot", "one", request="r")
    anywhere.templates.save("hot", "two")
    assert anywhere.templates.save("hot", "one", request="r").text == "two"


def test_what_can_not_be_saved(anywhere: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    templates = anywhere.templates
    with pytest.raises(InvalidArgument, match="'rollup' is a template that comes with the package"):
        templates.save("rollup", TEXT)
    with pytest.raises(InvalidArgument, match="'rollup' is a template that comes with the package"):
        templates.remove("rollup")
    with pytest.raises(InvalidArgument, match="not a valid name for a template"):
        templates.save("a/b", TEXT)
    monkeypatch.setattr(limits, "DEPLOYMENT_TEXT_BYTES_MAX", 10)
    with pytest.raises(TooLarge, match="the text of template 'hot'"):
        templates.save("hot", TEXT)
    monkeypatch.setattr(limits, "TEMPLATES_MAX", 1)
    templates.save("one", "1")
    with pytest.raises(InvalidArgument, match="the store has 1 templates, its limit"):
        templates.save("two", "2")
    assert templates.save("one", "3").text == "3"
