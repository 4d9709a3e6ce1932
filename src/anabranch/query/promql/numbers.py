"""Numbers as PromQL writes them."""

from __future__ import annotations

from decimal import Decimal


def number_text(value: float) -> str:
    """The shortest digits that are the number, without an exponent."""
    text = repr(value)
    if "e" in text:
        text = f"{Decimal(text):f}"
    elif text.endswith(("n", "f")):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[text]
    return text.removesuffix(".0")
