"""Imports of optional dependencies."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import MissingExtra
from anabranch.errors.optional import optional


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_package_that_is_not_installed_is_named_with_what_to_install() -> None:
    asked = r"^a query needs .* install it with: pip install 'anabranch\[query\]'$"
    with pytest.raises(MissingExtra, match=asked), optional("a query", "query"):
        import no_such_package_anywhere  # type: ignore[import-not-found]  # noqa: F401


def test_a_package_that_cant_be_loaded_says_why(modules: Path) -> None:
    (modules / "broken_here.py").write_text("raise ImportError('libstdc++.so.6: version not found')\n")
    with (
        pytest.raises(MissingExtra, match=r"can't be loaded \(libstdc\+\+.*\); install it again with: pip install it$"),
        optional("a query", package="it"),
    ):
        import broken_here  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("chain", ["from exc", ""])
def test_an_interrupt_is_no_missing_package(modules: Path, stopped: type[BaseException], chain: str) -> None:
    name = f"interrupted_{stopped.__name__}_{len(chain)}"
    (modules / f"{name}.py").write_text(
        f"try:\n    raise {stopped.__name__}(143)\nexcept BaseException as exc:\n    raise ImportError('so') {chain}\n"
    )
    with pytest.raises(stopped), optional("a query", "query"):
        __import__(name)


def test_a_module_of_our_own_that_is_missing_is_a_defect() -> None:
    with pytest.raises(ModuleNotFoundError) as raised, optional("a query", "query"):
        import anabranch.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert not isinstance(raised.value, MissingExtra)
