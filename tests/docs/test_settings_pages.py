"""The pages of settings, limits and extras say what each one means."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

from anabranch.runtime.settings import Settings
from anabranch.server.config import ServerSettings
from docs import site_hooks


def test_every_limit_has_a_meaning() -> None:
    limits = list(site_hooks._limits())
    assert len(limits) > 300
    assert [name for name, _, meaning in limits if not meaning] == []


def test_every_setting_has_a_meaning() -> None:
    text = Settings.__doc__ or ""
    assert [field.name for field in dataclasses.fields(Settings) if f"`{field.name}`" not in text] == []
    assert [name for name, field in ServerSettings.model_fields.items() if not field.description] == []


def test_every_extra_for_users_is_on_the_page() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    page = (root / "docs" / "how-to" / "install.md").read_text()
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(listed) == sorted(set(project["optional-dependencies"]) - {"bench", "docs", "dev"})
