"""What the signature of a variant says: who vouches for its metadata, and through its digest for its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.host.files import read_errors
from hubkernels.hub.sign_bundle import SignatureBundle, read_bundle
from hubkernels.hub.sign_key import PublicKey, require_cryptography
from hubkernels.hub.sign_policy import Policy
from hubkernels.model.digest import ALGORITHM, METADATA, SIGNATURE, digest_folder, uncovered

Status = Literal["good", "unsigned", "unreadable", "other content", "other signer", "invalid", "files changed"]


_WAYS_OUT: Mapping[Status, str] = {
    "unsigned": "publish it with --sign or --sign-key",
    "unreadable": "publish it again with --sign or --sign-key",
    "other content": "do not load it; ask who published it, or publish it again and sign",
    "other signer": "where you trust who signed, name them in the policy: docs/signing.md",
    "invalid": "do not load it; ask who published it",
    "files changed": "do not load it; download it again, and where it persists ask who published it",
}


@dataclass(frozen=True)
class SignatureState:
    """signer: a key by its name in the policy, or a workflow; None where none is proven. reason: why it is not good.

    unsigned: there is no signature. unreadable: what is there is none. other content: it is of another metadata.json.
    other signer: the policy does not allow who signed. invalid: the signature proves nothing of this. files changed:
    the metadata are signed, and a file is not as their digest says.

    kernel: name, version and backend of what is signed: it tells nothing of the repository and the folder where it is.
    """

    status: Status
    signer: str | None = None
    reason: str | None = None
    kernel: str | None = None

    @property
    def good(self) -> bool:
        return self.status == "good"

    def problem(self, where: str) -> Problem:
        """Of what is not good, with the way out."""
        return Problem(str(self), where, _WAYS_OUT[self.status])

    def __str__(self) -> str:
        return f"signed by {self.signer}" if self.good else f"{self.status}: {self.reason}"


def signature_state(folder: Path, policy: Policy) -> SignatureState:
    """Of one variant's folder, as it was downloaded. Asks nobody. Raises errors for a policy that cannot be used."""
    with read_errors(folder / METADATA):
        content = (folder / METADATA).read_bytes()
    try:
        with read_errors(folder / SIGNATURE):
            signature = (folder / SIGNATURE).read_bytes() if (folder / SIGNATURE).is_file() else None
        if signature is None:
            return SignatureState("unsigned", reason=f"there is no {SIGNATURE}")
        bundle = read_bundle(signature)
    except CheckFailedError as error:
        return SignatureState("unreadable", reason=error.problems[0].what)
    state = content_state(content, signature, bundle, policy)
    if not state.good:  # only what is signed is read: what is not may be made to break a reader
        return state
    if changed := ", ".join(_changed(content, folder)):
        return SignatureState("files changed", state.signer, changed)
    return replace(state, kernel=_kernel(content))


def content_state(content: bytes, signature: bytes, bundle: SignatureBundle, policy: Policy) -> SignatureState:
    """Of the metadata alone. signature: the bytes that the bundle was read from."""
    if not bundle.is_over(content):
        reason = f"{SIGNATURE} is over another file than this {METADATA}, or it was changed after it was signed"
        return SignatureState("other content", reason=reason)
    return _by_workflow(content, signature, policy) if bundle.keyless else _by_key(content, bundle, policy)


def _by_key(content: bytes, bundle: SignatureBundle, policy: Policy) -> SignatureState:
    require_cryptography()
    for name, key in policy.keys.items():
        if key.signed(content, bundle):
            return SignatureState("good", f"the key {name}")
    named = _named(bundle, policy)
    if named is not None:
        return SignatureState("invalid", reason=f"it names the key {named}, which did not sign this")
    return SignatureState("other signer", reason=f"the policy does not have the key {bundle.hint}")


def _named(bundle: SignatureBundle, policy: Policy) -> str | None:
    found: dict[str, PublicKey] = {name: key for name, key in policy.keys.items() if key.hint == bundle.hint}
    return next(iter(found), None)


def _by_workflow(content: bytes, signature: bytes, policy: Policy) -> SignatureState:
    from hubkernels.hub.sign_trust import is_of_workflow, verify_anybody  # noqa: PLC0415 - sigstore is slow

    try:
        signer = verify_anybody(content, signature, policy.trust_root)
    except CheckFailedError as error:
        return SignatureState("invalid", reason=error.problems[0].what)
    for workflow in policy.workflows:
        if is_of_workflow(content, signature, workflow, policy.trust_root):
            return SignatureState("good", str(workflow))
    return SignatureState("other signer", reason=f"the policy does not allow {signer}")


def _changed(content: bytes, folder: Path) -> Iterator[str]:
    """Files that are not as the signed digest says, each with what is wrong."""
    signed = _digest(content)
    if signed is None:
        yield f"{METADATA} has no {ALGORITHM} digest of the files"
        return
    found, loose = digest_folder(folder), {*uncovered(folder)}
    for name in sorted({*signed, *found, *loose}):
        if name not in found and name not in loose:
            yield f"{name} is missing"
        elif name not in signed or name in loose:
            yield f"{name} is not signed"
        elif found[name] != signed[name]:
            yield f"{name} was changed"


def _kernel(content: bytes) -> str:
    value = json.loads(content)
    backend = value.get("backend")
    words = (value.get("name"), value.get("version"), backend.get("type") if isinstance(backend, dict) else None)
    return " ".join(str(word) for word in words if word is not None)


def _digest(content: bytes) -> dict[str, Any] | None:
    try:
        digest = json.loads(content)["digest"]
        files = digest["files"] if digest["algorithm"] == ALGORITHM else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return files if isinstance(files, dict) else None
