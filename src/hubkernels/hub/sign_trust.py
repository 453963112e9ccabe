"""Signatures of workflows: a certificate and a log entry, held against a trust root that needs no network."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError, Problem

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier
    from sigstore.verify.policy import VerificationPolicy

GITHUB = "https://token.actions.githubusercontent.com"
GITHUB_SERVER = "https://github.com"
_TOKENS_OF_SERVER = "/_services/token"
"""Where a GitHub Enterprise Server has the issuer of its jobs' tokens."""


def server_of(issuer: str) -> str | None:
    """The address of the GitHub whose jobs an issuer gives tokens to; None where it does not tell."""
    if f"{issuer}/".startswith(f"{GITHUB}/"):  # a company on github.com may have one below it
        return GITHUB_SERVER
    return issuer.removesuffix(_TOKENS_OF_SERVER) if issuer.endswith(_TOKENS_OF_SERVER) else None


@dataclass(frozen=True)
class Workflow:
    """repository: its address. signer: the address of the workflow's file, ``@`` and the ref that it ran at."""

    repository: str
    signer: str
    issuer: str = GITHUB

    def __str__(self) -> str:
        return self.signer


def is_of_workflow(content: bytes, bundle: bytes, workflow: Workflow, root: Path | None) -> bool:
    """Whether the bundle is a signature of the workflow's over the content.

    root: a trust root, or a ClientTrustConfig with one; None is the one that comes with the installed sigstore.
    """
    from sigstore.verify import policy  # noqa: PLC0415 - an extra, and slow

    wanted = policy.AllOf(
        [
            policy.OIDCIssuerV2(workflow.issuer),
            policy.OIDCSourceRepositoryURI(workflow.repository),
            policy.OIDCBuildSignerURI(workflow.signer),
        ]
    )
    return _is_good(content, bundle, wanted, root)


def is_of_identity(content: bytes, bundle: bytes, subject: str, issuer: str, root: Path | None) -> bool:
    """Whether the bundle is a signature over the content by who has this name."""
    from sigstore.verify import policy  # noqa: PLC0415 - an extra, and slow

    return _is_good(content, bundle, policy.Identity(identity=subject, issuer=issuer), root)


def verify_anybody(content: bytes, bundle: bytes, root: Path | None) -> str:
    """Who signed, of a signature that is good whoever it is of. Raises CheckFailedError where it is not."""
    from sigstore.models import Bundle  # noqa: PLC0415 - an extra, and slow

    _verify(content, bundle, _Anybody(), root)
    return _subject(Bundle.from_json(bundle))


def _is_good(content: bytes, bundle: bytes, wanted: VerificationPolicy, root: Path | None) -> bool:
    try:
        _verify(content, bundle, wanted, root)
    except CheckFailedError:
        return False
    return True


class _Anybody:
    """A policy that allows every good certificate: who it is of is looked at afterwards."""

    def verify(self, cert: Certificate) -> None:
        pass


def _subject(bundle: object) -> str:
    from cryptography.x509 import SubjectAlternativeName  # noqa: PLC0415 - an extra, and slow

    certificate = bundle.signing_certificate  # type: ignore[attr-defined]
    names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    return ", ".join(str(name.value) for name in names)


def _verify(content: bytes, bundle: bytes, wanted: VerificationPolicy, root: Path | None) -> None:
    from sigstore.errors import Error, VerificationError  # noqa: PLC0415 - an extra, and slow
    from sigstore.models import Bundle  # noqa: PLC0415

    try:
        found = Bundle.from_json(bundle)
        _verifier(root).verify_artifact(content, found, wanted)
    except VerificationError as error:
        raise CheckFailedError(Problem(one_line(error))) from error
    except (Error, ValueError) as error:
        raise CheckFailedError(Problem(f"it is no bundle that sigstore reads: {one_line(error)}")) from error


def one_line(error: BaseException) -> str:
    """sigstore's errors are of several lines."""
    return " ".join(str(error).split())


def _verifier(root: Path | None) -> Verifier:
    """It asks nobody: who needs a newer trust root names one."""
    from sigstore.errors import Error  # noqa: PLC0415 - an extra, and slow
    from sigstore.verify import Verifier  # noqa: PLC0415

    logger = logging.getLogger("sigstore")
    if not logger.handlers:  # else what it warns of, as that it is offline, is printed where nobody wants a log
        logger.addHandler(logging.NullHandler())
    if root is None:
        try:
            return Verifier.production(offline=True)
        except OSError as error:
            what = f"sigstore cannot write the trust root that it brings to its cache: {error}"
            raise EnvironmentLacksError(
                Problem(what, hint="name the file: [sigstore] trust-root in the policy")
            ) from error
    try:
        return Verifier(trusted_root=_trusted_root(root))
    except (Error, OSError, ValueError) as error:
        raise InputError(Problem(f"the trust root cannot be read: {one_line(error)}", str(root))) from error


def _trusted_root(file: Path) -> TrustedRoot:
    """Also of a ClientTrustConfig: who signs with one need keep no second file to verify with."""
    from sigstore.models import ClientTrustConfig, TrustedRoot  # noqa: PLC0415 - an extra, and slow

    text = file.read_text(encoding="utf-8")
    found = json.loads(text)
    if isinstance(found, dict) and "trustedRoot" in found:
        return ClientTrustConfig.from_json(text).trusted_root
    return TrustedRoot.from_file(str(file))
