"""Signing without a key of one's own: sigstore gives a CI job a certificate that names its workflow.

Thin: what is in sigstore is not made again here. It needs the network: the certificate authority, the log and its time
stamps, those of the public sigstore or of one that a file names.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError, Problem
from hubkernels.host.files import read_errors, read_regular
from hubkernels.hub.sign_trust import GITHUB_SERVER, is_of_identity, one_line, server_of, verify_anybody

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.oidc import IdentityToken


_CIRCLE = "oidc.circleci.com"
_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("{server}/{}", ("job_workflow_ref",)),
    ("https://{}", ("ci_config_ref_uri",)),
    ("https://buildkite.com/{}/{}", ("organization_slug", "pipeline_slug")),
    (
        "https://circleci.com/api/v2/projects/{}/pipeline-definitions/{}",
        (f"{_CIRCLE}/project-id", f"{_CIRCLE}/pipeline-definition-id"),
    ),
)
"""How sigstore's authority names the jobs of GitHub, GitLab, Buildkite and CircleCI, by the claims of their tokens.

For these the subject that sigstore's client knows, ``sub``, is on no certificate.
"""


@dataclass(frozen=True)
class KeylessSigner:
    """Signs as what an ambient credential says that we are. token: the credential when it was looked for.

    It lives for minutes: each signature is made with one of its own.
    identity: the subject that sigstore's client sees in it.

    config: sigstore's own ClientTrustConfig, whose services sign and whose keys earlier signatures are held against;
    None is the public sigstore.
    server: the address of the GitHub that the job runs for, where the credential's issuer does not tell.
    """

    token: str = field(repr=False)
    config: Path | None = None
    identity: str = ""
    server: str = GITHUB_SERVER

    def sign(self, content: bytes) -> bytes:
        """The bundle over a file's content, which from then on is in the log. It is held against the keys at once."""
        from sigstore.errors import VerificationError  # noqa: PLC0415 - an extra, and slow
        from sigstore.models import InvalidBundle  # noqa: PLC0415
        from sigstore.sign import SigningContext  # noqa: PLC0415

        try:
            context = SigningContext.from_trust_config(_trust_config(self.config))
            with context.signer(_identity(_credential())) as signer:
                bundle = signer.sign_artifact(content).to_json().encode()
        except (InputError, EnvironmentLacksError):
            raise
        except (VerificationError, InvalidBundle) as error:  # of the certificate; of a time that nobody gave
            raise CheckFailedError(self._bad(one_line(error))) from error
        except Exception as error:  # what sigstore's clients raise has no base, and no public name
            raise EnvironmentLacksError(_refusal(error, self.config)) from error
        self._refuse_another_s(content, bundle)
        return bundle

    def made(self, content: bytes, bundle: bytes) -> bool:
        """Whether a bundle is a good signature over the content by the same workflow."""
        return is_of_identity(content, bundle, self._subject, self._issuer, self.config)

    def _refuse_another_s(self, content: bytes, bundle: bytes) -> None:
        """A time stamp that was not given, or a certificate of another workflow, nobody would take afterwards.

        Nor would it be known of a certificate whose name is not foreseen that we have signed already.
        """
        try:
            signer = verify_anybody(content, bundle, self.config)
        except CheckFailedError as error:
            raise CheckFailedError(self._bad(error.problems[0].what)) from error
        if self.made(content, bundle):
            return
        if self._workflow:
            raise CheckFailedError(self._bad(f"it is of another workflow: {signer}, and this is {self._workflow}"))
        what = f"it is of {signer}, and by its credential this job is {self._subject}"
        raise CheckFailedError(replace(self._bad(what), hint=_UNFORESEEN))

    def _bad(self, why: str) -> Problem:
        hint = "nothing was published; is this the sigstore that you mean? Ask who runs it"
        where = str(self.config) if self.config else None
        return Problem(f"what sigstore gave does not verify: {why}", where, hint)

    @property
    def _claims(self) -> dict[str, object]:
        body = self.token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return found if isinstance(found, dict) else {}

    @property
    def _issuer(self) -> str:
        return str(self._claims.get("iss"))

    @property
    def _workflow(self) -> str | None:
        """The name that the certificate of a CI job will have: an address."""
        claims, server = self._claims, server_of(self._issuer) or self.server
        told = ((form, [claims.get(name) for name in names]) for form, names in _NAMES)
        known = ((form, words) for form, words in told if all(isinstance(word, str) for word in words))
        return next((form.format(*words, server=server) for form, words in known), None)

    @property
    def _subject(self) -> str:
        """As `_workflow`; of who is no such job, what the credential calls it: an address of mail, or ``sub``."""
        return self._workflow or self.identity


def ambient_signer(config: Path | None = None, server: str = GITHUB_SERVER) -> KeylessSigner:
    """The signer of the CI job that we run in. Raises EnvironmentLacksError where there is no such credential.

    A configuration that cannot be read, and a credential that is over, are told before anything is done.
    """
    if config is not None:
        _trust_config(config)
    token = _credential()
    return KeylessSigner(token, config, _identity(token).identity, server)


def _trust_config(file: Path | None) -> ClientTrustConfig:
    try:
        from sigstore.errors import Error  # noqa: PLC0415 - an extra, and slow
        from sigstore.models import ClientTrustConfig  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentLacksError(_NOT_INSTALLED) from error
    if file is None:
        return ClientTrustConfig.production()
    with read_errors(file):
        text = read_regular(file).decode(errors="replace")
    try:
        config = ClientTrustConfig.from_json(text)
        _ = config.signing_config, config.trusted_root
    except (Error, ValueError) as error:
        hint = "sigstore's ClientTrustConfig: JSON with trustedRoot and signingConfig, from who runs that sigstore"
        what = f"the sigstore configuration cannot be read: {one_line(error)}"
        raise InputError(Problem(what, str(file), hint)) from error
    return config


def _identity(token: str) -> IdentityToken:
    """Raises EnvironmentLacksError for a credential that no authority would take."""
    from sigstore.oidc import IdentityError, IdentityToken  # noqa: PLC0415 - an extra, and slow

    try:
        return IdentityToken(token)
    except IdentityError as error:
        what = f"the ambient credential cannot be used: {one_line(error.__cause__ or error)}"
        hint = "it is good for minutes: is this machine's clock right? Else start the job again"
        raise EnvironmentLacksError(Problem(what, hint=hint)) from error


def _credential() -> str:
    try:
        from sigstore.oidc import IdentityError, detect_credential  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise EnvironmentLacksError(_NOT_INSTALLED) from error
    try:
        token = detect_credential()
    except IdentityError as error:
        raise EnvironmentLacksError(Problem(f"the ambient credential is not given: {error}", hint=_HINT)) from error
    if token is None:
        what = "--sign is for CI: there is no ambient OIDC credential to sign with"
        raise EnvironmentLacksError(Problem(what, hint=_HINT))
    return token


def _refusal(error: Exception, config: Path | None) -> Problem:
    """What a service said, which sigstore's errors often leave out, and the address of it."""
    from requests import RequestException  # noqa: PLC0415 - sigstore's, and slow

    asked = next((each for each in _causes(error) if isinstance(each, RequestException)), None)
    answer = asked.response if asked is not None else None
    if asked is None or answer is None:
        hint = "keyless signing needs the network; without one: `kernel-builder keygen` and --sign-key"
        where = str(asked.request.url) if asked is not None and asked.request is not None else config
        said = one_line(error) or type(error).__name__
        return Problem(f"sigstore did not sign: {said}", str(where) if where else None, hint)
    said = f"{answer.status_code} {_message(answer.text) or answer.reason}"
    hint = _LATER if answer.status_code >= _BROKEN else _REFUSED
    return Problem(f"sigstore did not sign: {said}", str(answer.url), hint)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _message(text: str) -> str | None:
    """Of what both the authority and the log answer with when they refuse."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


_BROKEN = 500
_LATER = "nothing was published; it is sigstore's own trouble: run it again later"
_REFUSED = (
    "nothing was published; does this sigstore take the issuer of the job's credential? --sign-config names another"
)
_UNFORESEEN = (
    "nothing was published: whether it has signed before could never be told; sign with a key, --sign-key FILE, "
    "or let who runs that sigstore name its certificates by `sub`"
)
_HINT = "GitHub gives one to jobs with `permissions: id-token: write`; elsewhere sign with a key: --sign-key FILE"
_NOT_INSTALLED = Problem("signing needs sigstore, which is not installed", hint="pip install 'hubkernels[client]'")
