"""Signing without a key of one's own: sigstore gives a CI job a certificate that names its workflow.

Thin: what is in sigstore is not made again here. It needs the network: the certificate authority, the log and its time
stamps.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.hub.sign_trust import is_of_identity

if TYPE_CHECKING:
    from sigstore.oidc import IdentityToken


@dataclass(frozen=True)
class KeylessSigner:
    """Signs as what an ambient credential says that we are. token: the credential when it was looked for.

    It lives for minutes: each signature is made with one of its own.

    trust_root: what earlier signatures are held against; None is that of the installed sigstore.
    """

    token: str
    trust_root: Path | None = None

    def sign(self, content: bytes) -> bytes:
        """The bundle over a file's content, which from then on is in sigstore's public log."""
        from sigstore.errors import Error  # noqa: PLC0415 - an extra, and slow
        from sigstore.models import ClientTrustConfig  # noqa: PLC0415
        from sigstore.sign import SigningContext  # noqa: PLC0415

        try:
            context = SigningContext.from_trust_config(ClientTrustConfig.production())
            with context.signer(_identity()) as signer:
                return signer.sign_artifact(content).to_json().encode()
        except (Error, OSError, ValueError) as error:
            hint = "keyless signing needs the network; without one: `kernel-builder keygen` and --sign-key"
            raise EnvironmentLacksError(Problem(f"sigstore did not sign: {error}", hint=hint)) from error

    def made(self, content: bytes, bundle: bytes) -> bool:
        """Whether a bundle is a good signature over the content by the same workflow."""
        subject, issuer = self._subject, str(self._claims.get("iss"))
        return subject is not None and is_of_identity(content, bundle, subject, issuer, self.trust_root)

    @property
    def _claims(self) -> dict[str, object]:
        body = self.token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return found if isinstance(found, dict) else {}

    @property
    def _subject(self) -> str | None:
        """The name that the certificate will have: of a GitHub workflow, its address; of others it is not foreseen."""
        workflow = self._claims.get("job_workflow_ref")
        return f"https://github.com/{workflow}" if isinstance(workflow, str) else None


def ambient_signer() -> KeylessSigner:
    """The signer of the CI job that we run in. Raises EnvironmentLacksError where there is no such credential."""
    return KeylessSigner(_credential())


def _identity() -> IdentityToken:
    from sigstore.oidc import IdentityToken  # noqa: PLC0415 - an extra, and slow

    return IdentityToken(_credential())


def _credential() -> str:
    try:
        from sigstore.oidc import IdentityError, detect_credential  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        hint = "pip install 'hubkernels[client]'"
        raise EnvironmentLacksError(Problem("signing needs sigstore, which is not installed", hint=hint)) from error
    try:
        token = detect_credential()
    except IdentityError as error:
        raise EnvironmentLacksError(Problem(f"the ambient credential is not given: {error}", hint=_HINT)) from error
    if token is None:
        what = "--sign is for CI: there is no ambient OIDC credential to sign with"
        raise EnvironmentLacksError(Problem(what, hint=_HINT))
    return token


_HINT = "GitHub gives one to jobs with `permissions: id-token: write`; elsewhere sign with a key: --sign-key FILE"
