"""A signature in the form of a sigstore bundle: JSON beside the file that it is over.

sigstore's own reader knows bundles with a certificate alone; those with the name of a key are read and written here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from hubkernels.errors import CheckFailedError, Problem

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_MEDIA_TYPES = "application/vnd.dev.sigstore.bundle"
_ALGORITHM = "SHA2_256"


@dataclass(frozen=True)
class SignatureBundle:
    """hint: the name of the key that signed, which proves nothing; None where a certificate says who did.

    digest: SHA-256 of the content that was signed, where the bundle has it.
    """

    signature: bytes
    digest: bytes | None
    hint: str | None

    @property
    def keyless(self) -> bool:
        return self.hint is None

    def is_over(self, content: bytes) -> bool:
        """Whether the bundle says nothing else than that it is over this; the signature has to prove it."""
        return self.digest is None or hashlib.sha256(content).digest() == self.digest


def write_bundle(content: bytes, signature: bytes, hint: str) -> bytes:
    """The bundle of a signature that a key made."""
    digest = {"algorithm": _ALGORITHM, "digest": _text(hashlib.sha256(content).digest())}
    value = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "messageSignature": {"messageDigest": digest, "signature": _text(signature)},
    }
    return (json.dumps(value, indent=2) + "\n").encode()


def read_bundle(content: bytes) -> SignatureBundle:
    """Raises CheckFailedError for what is no bundle over a file."""
    try:
        value = json.loads(content)
        media, material, signed = (value[key] for key in ("mediaType", "verificationMaterial", "messageSignature"))
        known = str(media).startswith(_MEDIA_TYPES)
        found = SignatureBundle(_bytes(signed["signature"]), _digest(signed), _hint(material))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise CheckFailedError(_NONE) from error
    if not known:
        raise CheckFailedError(_NONE)
    return found


_NONE = Problem("it is no sigstore bundle of a file's signature", hint="sign again: `kernel-builder publish --sign`")


def _digest(signed: dict[str, Any]) -> bytes | None:
    digest = signed.get("messageDigest")
    if digest is not None and digest["algorithm"] != _ALGORITHM:
        raise ValueError(digest["algorithm"])
    return _bytes(digest["digest"]) if digest is not None else None


def _hint(material: dict[str, Any]) -> str | None:
    if "publicKey" in material:
        return str(material["publicKey"].get("hint", ""))
    if "certificate" in material or "x509CertificateChain" in material:
        return None
    raise KeyError("publicKey")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)
