"""The public keys whose signatures a store accepts on deployed queries. With any, every deployed query has to be signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, versioned
from anabranch.model.ids import Micros

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """An Ed25519 public key of 32 bytes, in hex. `label` says whose it is."""

    key: str
    label: str
    added_at: Micros


TRUSTED_KEY: Final[StateKind[str, TrustedKey]] = state_kind(
    "trusted_key",
    by="the public key, in hex",
    key=TEXT_KEY,
    value=versioned(codec_of(TrustedKey), FORMAT, "trusted key"),
    identity=lambda row: row.key,
    example=(
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        TrustedKey(
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "release",
            Micros(1_767_225_660_000_000),
        ),
    ),
)
