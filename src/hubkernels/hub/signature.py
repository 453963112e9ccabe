"""Signatures of published variants: metadata.json.sigstore, over the bytes of metadata.json, which has the digest."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hubkernels.model.digest import SIGNATURE

SignatureState = Literal["unsigned", "not verified"]


def signature_state(variant: Path) -> SignatureState:
    """Of one variant's folder. not verified: a signature is there, and nothing here has looked at it."""
    return "not verified" if (variant / SIGNATURE).is_file() else "unsigned"
