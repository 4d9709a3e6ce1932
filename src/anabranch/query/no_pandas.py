"""Importing this module keeps pandas out of a process, if it comes before `pyarrow.dataset`: that imports pandas where it is
installed, which takes a third of the start of a process that runs queries and makes no use of it.

Only for processes of our own, such as `worker`: Arrow then can't convert to pandas until the process ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas, and leave all else to the other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError("this process makes no use of pandas", name=fullname)
        return None


sys.meta_path.insert(0, _NoPandas())
