"""Wheels made for tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(files: Mapping[str, str], *, name: str = "scoring", metadata: str = WHEEL) -> bytes:
    """A wheel with these files, by their paths."""
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in files.items():
                archive.writestr(path, content)
            archive.writestr(f"{name}-1.0.dist-info/WHEEL", metadata)
            archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        return buffer.getvalue()
